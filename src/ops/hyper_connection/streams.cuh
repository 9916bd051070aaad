// What the CTAs of the one pass over the streams (streams.cu) have in shared memory, and what they are given.
#pragma once

#include "ops/cuda/fp8_rows.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/hyper_connection/coefficients.cuh"

namespace hadal::cuda::streams {

inline constexpr int kParts = 2, kTiles = kParts * kMixes / 16;  // of the tensor core: 16 rows of the parts of fn
inline constexpr int kWarps = 5, kColumns = 32 * kWarps, kRows = 16;
inline constexpr int kTeams = 2, kTeamThreads = 32 * (kWarps + 1);
inline constexpr int kStages = 2;  // row tiles in flight, of each team
// The warp that also moves rows: it sends the sums of three rows, warp 0 of four.
inline constexpr int kCarries = kWarps - 1;
inline constexpr int kSums = kSent + 1;       // and the sum of squares of x
inline constexpr int kLag = 2;                // tiles between the sums of a row and their use
inline constexpr int kRing = 8;               // tiles whose sums may be under way; 2 kLag + 1 are needed
inline constexpr int kCoefficients = kMixes;  // of a row: pre, post, comb
inline constexpr int kUsualSlices = 32;       // of the release
inline constexpr int kFinishRows = 8;         // rows whose coefficients are made together
inline constexpr int kGroup = 128;            // columns of a scale of Q4
inline constexpr int kEnds = 2;               // a slice has columns of two groups

struct Pass {
  CUtensorMap h_boxes, y_boxes, h_out_boxes;  // those of the inputs only without lists of rows
  int rows, d, sinkhorn_iters;
  float hc_eps, norm_eps;
  const uint16_t* h;
  const float *pre, *post, *comb;
  const uint16_t* y;
  const int32_t *source, *y_source;
  uint16_t* h_out;
  uint16_t* x;
  uint16_t* collapsed;  // x before the norm
  Fp8Rows rounded;      // Q4 of x
  const uint16_t* norm;
  const float *fn, *base, *scale;
  float *pre_out, *post_out, *comb_out;
  uint64_t* squares;   // [groups * kTeams, kRing, slices, kRows]
  uint64_t* products;  // [groups * kTeams, kRing, slices, kRows, kSent]
  uint64_t* largest;   // [groups * kTeams, kRing, slices, kEnds, kRows]
  uint32_t* tags;      // [groups * kTeams] the tag that was used last
};

struct Team {
  // Columns of h and y; in the places of h those of h' afterwards.
  alignas(128) uint16_t in[kStages][kCopies + 1][kRows][kColumns];
  float sums[2][kWarps][kRows][kSums];
  float coefficients[2][kRows][kCoefficients];
  float x_scale[2][kRows];
  float largest[2][kWarps][kRows];  // magnitudes of x before its scale
  float q4_inverse[2][kEnds][kRows];
  float finish[kFinishRows][kSent];
  int finish_row[kFinishRows];
  uint32_t tag;
  uint64_t full[kStages];
};
struct Shared {
  uint4 fn[kWarps][kCopies][2][kTiles][32];
  float base[kMixes], scale[4];
  Team team[kTeams];

  static constexpr size_t bytes(int teams) { return sizeof(Shared) - (kTeams - teams) * sizeof(Team); }
};
static_assert(sizeof(Shared) <= 227 * 1024);

// A warp's part of fn for some copies, in the order of the tensor core's operand A. Its 48 rows are the high parts of the
// 24 mixes, then the low parts; lane (g, t) has rows 16 tile + g and 16 tile + g + 8 at columns 8 t .. 8 t + 7.
template <int Copies>
__device__ __forceinline__ void load_fn(const Pass& p, int column, int first_copy, uint4 (*to)[2][kTiles][32]) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  float4 raw[Copies][3][2];
#pragma unroll
  for (int c = 0; c < Copies; ++c)
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      const auto* from =
          reinterpret_cast<const float4*>(p.fn + (int64_t{8 * r + g} * kCopies + first_copy + c) * p.d + column);
      raw[c][r][0] = __ldg(from);
      raw[c][r][1] = __ldg(from + 1);
    }
#pragma unroll
  for (int c = 0; c < Copies; ++c) {
    uint32_t high[3][4], low[3][4];
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      const float4 a = raw[c][r][0], b = raw[c][r][1];
      const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        high[r][i] = pack_bf16x2(v[2 * i], v[2 * i + 1]);
        low[r][i] = pack_bf16x2(v[2 * i] - __uint_as_float(high[r][i] << 16),
                                v[2 * i + 1] - __uint_as_float(high[r][i] & 0xffff0000u));
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int i = 2 * m;
      auto& out = to[first_copy + c][m];
      out[0][lane] = make_uint4(high[0][i], high[1][i], high[0][i + 1], high[1][i + 1]);
      out[1][lane] = make_uint4(high[2][i], low[0][i], high[2][i + 1], low[0][i + 1]);
      out[2][lane] = make_uint4(low[1][i], low[2][i], low[1][i + 1], low[2][i + 1]);
    }
  }
}

// Where Q4 of x has its groups of 128 columns: a slice begins 0, 32, 64 or 96 columns behind one, and so has columns of two
// groups, each its own or shared with the neighbour at that end.
struct Ends {
  int slice;
  __device__ __forceinline__ int offset() const { return slice % (kGroup / 32); }  // warps
  __device__ __forceinline__ int of(int warp) const { return (offset() + warp) / (kGroup / 32); }
  __device__ __forceinline__ int group(int end) const { return slice * kColumns / kGroup + end; }
  __device__ __forceinline__ bool shared(int end) const { return offset() != (end == 0 ? 0 : kGroup / 32 - 1); }
};
static_assert(kColumns == kGroup + 32);

// The tiles of one team: its group's, every second one where there are two teams.
struct Tiles {
  int first, step, count;
  __device__ __forceinline__ int row(int i) const { return (first + i * step) * kRows; }
};

}  // namespace hadal::cuda::streams
