// Hyper-connections in one pass: every stream is read once and written once, y read once, x written once.
//
// A CTA owns 160 columns of d (of all four copies) and works through tiles of 16 rows, so that its part of fn stays in
// shared memory. d / 160 CTAs share a row and exchange its 26 sums (exchange.cuh): every one of them needs the sum of
// squares of x before it can normalise its columns, and one of them makes the mixing coefficients. A tile is finished three
// tiles later, when its sums have long arrived: CTAs that wait for each other at once move at the pace of the slowest. A CTA
// has two teams that take tiles in turn, each of five warps that compute (32 columns each) and one that receives sums. The
// copy engine brings h and y as boxes, and takes h' from where h lay; one of the five warps tells it to, since whatever the
// receiving warp waits for holds up the team.
//
// The 24 mixing products of a row run on the tensor cores with fn split into two bf16 parts, 16 bits and a sign each: the
// part that is left out is below 2^-17 of a value, half of what the fp32 sum over 4 d products loses.
// Columns, not rows, decide how sums are cut: a row has the same bits in every batch.
#include "ops/hyper_connection/streams.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "ops/cuda/boxes.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/exchange.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/row.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/hyper_connection/coefficients.cuh"

namespace hadal::cuda {
namespace {

constexpr int kParts = 2, kTiles = kParts * kMixes / 16;  // of the tensor core: 16 rows of the parts of fn
constexpr int kWarps = 5, kColumns = 32 * kWarps, kRows = 16;
constexpr int kTeams = 2, kTeamThreads = 32 * (kWarps + 1);
constexpr int kStages = 2;             // row tiles in flight, of each team
constexpr int kCarries = kWarps - 1;   // the warp that also moves rows: it sends the sums of three rows, warp 0 of four
constexpr int kSums = kSent + 1;       // and the sum of squares of x
constexpr int kLag = 3;                // tiles between the sums of a row and their use
constexpr int kRing = 8;               // tiles whose sums may be under way; 2 kLag + 1 are needed
constexpr int kCoefficients = kMixes;  // of a row: pre, post, comb
constexpr int kUsualSlices = 32;       // of the release
constexpr int kFinishRows = 32;        // rows whose coefficients are made together, a lane each

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
  const uint16_t* norm;
  const float *fn, *base, *scale;
  float *pre_out, *post_out, *comb_out;
  uint64_t* squares;   // [groups * kTeams, kRing, slices, kRows]
  uint64_t* products;  // [groups * kTeams, kRing, slices, kRows, kSent]
  uint32_t* tags;      // [groups * kTeams] the tag that was used last
};

struct Team {
  // Columns of h and y; in the places of h those of h' afterwards.
  alignas(128) uint16_t in[kStages][kCopies + 1][kRows][kColumns];
  float sums[2][kWarps][kRows][kSums];
  float coefficients[2][kRows][kCoefficients];
  float x_scale[2][kRows];
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

// The tiles of one team: its group's, every second one where there are two teams.
struct Tiles {
  int first, step, count;
  __device__ __forceinline__ int row(int i) const { return (first + i * step) * kRows; }
};

template <bool Write, bool Collapse, bool Mix>
struct Streams {
  static constexpr bool kExchange = Collapse || Mix;

  // ---- rows to and from shared memory ------------------------------------------------------------------------------
  struct Carrier {
    const Pass& p;
    Team& team;
    const Tiles& tiles;
    int first;
    uint64_t policy;

    __device__ __forceinline__ Carrier(const Pass& pass, Team& own, const Tiles& list)
        : p(pass), team(own), tiles(list), first(blockIdx.x * kColumns), policy(evict_first_policy()) {}
    __device__ __forceinline__ void fetch(int i) const {
      if (i >= tiles.count) return;
      uint64_t* full = &team.full[i % kStages];
      const int lane = threadIdx.x % 32;
      auto* to = team.in[i % kStages];
      if (p.source == nullptr && p.y_source == nullptr) {
        if (lane != 0) return;
        mbarrier_arrive_expect(full, (kCopies + Write) * sizeof(team.in[0][0]));
        slice_copy(to, &p.h_boxes, first, tiles.row(i), full, policy);
        if constexpr (Write) slice_copy(to[kCopies], &p.y_boxes, first, tiles.row(i), full);
        return;
      }
      const uint32_t bytes = 2 * min(kColumns, p.d - first);
      if (lane == 0) mbarrier_arrive_expect(full, (kCopies + Write) * kRows * bytes);
      __syncwarp();
      if (lane >= kRows) return;
      // Past the end the last row once more: what comes of it is not stored.
      const int row = min(tiles.row(i) + lane, p.rows - 1);
      const int64_t s = p.source != nullptr ? p.source[row] : row;
      for (int copy = 0; copy < kCopies; ++copy)
        bulk_copy(to[copy][lane], p.h + (s * kCopies + copy) * p.d + first, bytes, full, policy);
      if constexpr (Write)
        bulk_copy(to[kCopies][lane], p.y + (p.y_source != nullptr ? p.y_source[row] : int64_t{row}) * p.d + first,
                  bytes, full);
    }
    // h' of tile i leaves; afterwards the tile after the next may come.
    __device__ __forceinline__ void store(int i) const {
      if (p.h_out == nullptr || threadIdx.x % 32 != 0) return;
      slice_store(&p.h_out_boxes, first, tiles.row(i), team.in[i % kStages], policy);
      bulk_store_commit();
    }
    __device__ __forceinline__ void fetch_after_store(int i) const {
      if (threadIdx.x % 32 == 0) bulk_store_wait_read();
      __syncwarp();
      fetch(i + kStages);
    }
  };

  // ---- the warps that compute -----------------------------------------------------------------------------------
  struct Compute {
    const Pass& p;
    Shared& shared;
    Team& team;
    const Tiles& tiles;
    int warp, column;
    bool active;

    __device__ __forceinline__ Compute(const Pass& pass, Shared& all, Team& own, const Tiles& list, int number)
        : p(pass), shared(all), team(own), tiles(list), warp(number) {
      const int first = blockIdx.x * kColumns + 32 * warp;
      column = first + 8 * (threadIdx.x % 4);
      active = first < p.d;
    }
    // Eight rows of a tile: h' and x of this lane's columns, and its part of their sums of squares.
    __device__ __forceinline__ void rows(int i, int half, uint32_t (&h_new)[kCopies][4], uint4& x_new, float& hh,
                                         float& xx) {
      const int lane = threadIdx.x % 32, local = lane / 4 + 8 * half, row = tiles.row(i) + local;
      const bool valid = row < p.rows;
      const float* coefficients = team.coefficients[i % 2][local];
      // This lane's columns of copy 0; those of a copy are kRows * kColumns behind those of the one before.
      uint16_t* const in = &team.in[i % kStages][0][local][32 * warp + 8 * (lane % 4)];
      const auto part = [&](int copy) { return reinterpret_cast<uint4*>(in + copy * (kRows * kColumns)); };
      if constexpr (Write) {
        float y[8], h[kCopies][8], comb[kCopies * kCopies], post[kCopies];
        unpack8(*part(kCopies), y);
#pragma unroll
        for (int j = 0; j < kCopies; ++j) unpack8(*part(j), h[j]);
#pragma unroll
        for (int j = 0; j < kCopies + 1; ++j) {
          const float4 c = *reinterpret_cast<const float4*>(coefficients + kCopies * (1 + j));
          float* to = j == 0 ? post : comb + kCopies * (j - 1);
          to[0] = c.x, to[1] = c.y, to[2] = c.z, to[3] = c.w;
        }
#pragma unroll
        for (int k = 0; k < kCopies; ++k)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float v[2];
#pragma unroll
            for (int f = 0; f < 2; ++f) {
              v[f] = post[k] * y[2 * e + f];
#pragma unroll
              for (int j = 0; j < kCopies; ++j) v[f] = fmaf(comb[j * kCopies + k], h[j][2 * e + f], v[f]);
            }
            h_new[k][e] = pack_bf16x2(v[0], v[1]);
          }
#pragma unroll
        for (int k = 0; k < kCopies; ++k) *part(k) = make_uint4(h_new[k][0], h_new[k][1], h_new[k][2], h_new[k][3]);
      } else {
#pragma unroll
        for (int j = 0; j < kCopies; ++j) {
          const uint4 v = *part(j);
          h_new[j][0] = v.x, h_new[j][1] = v.y, h_new[j][2] = v.z, h_new[j][3] = v.w;
        }
      }
      float x[8] = {};
      float4 pre{};
      if constexpr (Collapse) pre = *reinterpret_cast<const float4*>(coefficients);
      const float weight[kCopies] = {pre.x, pre.y, pre.z, pre.w};
#pragma unroll
      for (int j = 0; j < kCopies; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float low = __uint_as_float(h_new[j][e] << 16);
          const float high = __uint_as_float(h_new[j][e] & 0xffff0000u);
          if constexpr (Mix) hh = fmaf(high, high, fmaf(low, low, hh));
          if constexpr (Collapse) {
            x[2 * e] = fmaf(weight[j], low, x[2 * e]);
            x[2 * e + 1] = fmaf(weight[j], high, x[2 * e + 1]);
          }
        }
      if constexpr (Collapse) {
        uint32_t packed[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          packed[e] = pack_bf16x2(x[2 * e], x[2 * e + 1]);
          const float low = __uint_as_float(packed[e] << 16), high = __uint_as_float(packed[e] & 0xffff0000u);
          xx = fmaf(high, high, fmaf(low, low, xx));
        }
        x_new = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        if (p.collapsed != nullptr && valid)
          *reinterpret_cast<uint4*>(p.collapsed + (int64_t{row} * p.d + column)) = x_new;
      }
    }

    // The mixing products of Halves times eight rows.
    template <int Halves>
    __device__ __forceinline__ void products(const uint32_t (&h_new)[2][kCopies][4], float (&dots)[2][kTiles][4]) {
#pragma unroll
      for (int copy = 0; copy < kCopies; ++copy)
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            const uint4 a = shared.fn[warp][copy][m][tile][threadIdx.x % 32];
#pragma unroll
            for (int half = 0; half < Halves; ++half)
              mma_bf16(dots[half][tile], a.x, a.y, a.z, a.w, h_new[half][copy][2 * m], h_new[half][copy][2 * m + 1]);
          }
    }

    __device__ __forceinline__ void leave_sums(int i, const float (&dots)[2][kTiles][4], float (&hh)[2],
                                               float (&xx)[2]) {
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int offset = 1; offset < 4; offset *= 2) {
          hh[half] += __shfl_xor_sync(kFullWarp, hh[half], offset);
          xx[half] += __shfl_xor_sync(kFullWarp, xx[half], offset);
        }
        float(*to)[kSums] = team.sums[i % 2][warp] + 8 * half;
        if constexpr (Mix)
#pragma unroll
          for (int e = 0; e < 2; ++e) {  // high and low parts of mixes g, g + 8, g + 16
            const auto& d = dots[half];
            to[2 * t + e][g] = d[0][e] + d[1][2 + e];
            to[2 * t + e][g + 8] = d[0][2 + e] + d[2][e];
            to[2 * t + e][g + 16] = d[1][e] + d[2][2 + e];
          }
        if (t == 0) *reinterpret_cast<float2*>(to[g] + kMixes) = make_float2(hh[half], xx[half]);
      }
    }

    // The norm of x, when its scale is there.
    __device__ __forceinline__ void finish(int i, const uint4 (&x)[2], const uint4& norm) {
      if (!Collapse || p.norm == nullptr || !active) return;
      float w[8];
      unpack8(norm, w);
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int local = lane / 4 + 8 * half, row = tiles.row(i) + local;
        if (row >= p.rows) continue;
        const float scale = team.x_scale[i % 2][local];
        float v[8];
        unpack8(x[half], v);
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = w[e] * (v[e] * scale);
        *reinterpret_cast<uint4*>(p.x + (int64_t{row} * p.d + column)) = make_uint4(
            pack_bf16x2(v[0], v[1]), pack_bf16x2(v[2], v[3]), pack_bf16x2(v[4], v[5]), pack_bf16x2(v[6], v[7]));
      }
    }

    __device__ __forceinline__ void run(const Carrier& carrier, int barrier, uint64_t* squares, uint64_t* products_to) {
      const uint32_t tag = team.tag;
      const int lane = threadIdx.x % 32;
      uint4 norm{};
      if (Collapse && active && p.norm != nullptr) norm = __ldg(reinterpret_cast<const uint4*>(p.norm + column));
      // Lane v sends sum v of rows warp, warp + kWarps, ...
      const bool sends = lane < kSums && (Mix || lane == kSent);
      const int width = lane == kSent ? 1 : kSent, first_word = (static_cast<int>(blockIdx.x) * kRows + warp) * width;
      uint64_t* const send_to = lane == kSent ? squares + first_word : products_to + (first_word + lane);
      const int slot_words = static_cast<int>(gridDim.x) * kRows * width;
      uint4 x[kLag][2] = {};  // of the tiles before, the latest first
      for (int i = 0; i < (kExchange ? tiles.count + kLag : tiles.count); ++i) {
        uint4 x_new[2] = {};
        if (i < tiles.count) {
          float dots[2][kTiles][4] = {}, hh[2] = {}, xx[2] = {};
          mbarrier_wait(&team.full[i % kStages], i / kStages & 1);
          if (active) {
            uint32_t h_new[2][kCopies][4];  // as packed pairs: the tensor core's operand B
            const bool upper = tiles.row(i) + 8 < p.rows;
            rows(i, 0, h_new[0], x_new[0], hh[0], xx[0]);
            if (upper) rows(i, 1, h_new[1], x_new[1], hh[1], xx[1]);
            if constexpr (Write) fence_async_shared();  // the copy engine takes h' from here
            if constexpr (Mix) upper ? products<2>(h_new, dots) : products<1>(h_new, dots);
          }
          if constexpr (kExchange) leave_sums(i, dots, hh, xx);
        }
        named_barrier(barrier, kTeamThreads);
        if (warp == kCarries && i < tiles.count) carrier.store(i);
        if constexpr (kExchange) {
          if (i < tiles.count && sends) {
            // The sums of five warps, in order; all rows of the tile, so that no word keeps an older tag than its neighbours.
            const uint32_t now = tag + 1 + i;
            uint64_t* to = send_to + static_cast<int>(now % kRing) * slot_words;
            const float* from = &team.sums[i % 2][0][warp][lane];
#pragma unroll
            for (int r = 0; r < (kRows + kWarps - 1) / kWarps; ++r) {
              if (warp + r * kWarps >= kRows) continue;
              float sum = 0;
#pragma unroll
              for (int w = 0; w < kWarps; ++w) sum += from[(w * kRows + r * kWarps) * kSums];
              send(to + r * kWarps * width, sum, now);
            }
          }
          if (i >= kLag) finish(i - kLag, x[kLag - 1], norm);
#pragma unroll
          for (int n = kLag - 1; n > 0; --n) x[n][0] = x[n - 1][0], x[n][1] = x[n - 1][1];
          x[0][0] = x_new[0];
          x[0][1] = x_new[1];
        }
        if (warp == kCarries && i < tiles.count) carrier.fetch_after_store(i);
      }
    }
  };

  // ---- the warp that receives -----------------------------------------------------------------------------------
  // A lane copies three units of 16 bytes of a tile's coefficients.
  struct Coefficients {
    static constexpr int kEach = kRows * kCoefficients / 4 / 32;
    const float* from[kEach];
    int local[kEach], step[kEach];  // floats from row to row
    uint32_t to[kEach];

    __device__ __forceinline__ Coefficients(const Pass& p, const Team& team) {
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        const int at = threadIdx.x % 32 + 32 * n, unit = at % (kCoefficients / 4);
        local[n] = at / (kCoefficients / 4);
        step[n] = unit < 2 ? kCopies : kCopies * kCopies;
        from[n] = unit == 0   ? (Collapse ? p.pre : nullptr)
                  : unit == 1 ? (Write ? p.post : nullptr)
                              : (Write ? p.comb + (unit - 2) * kCopies : nullptr);
        to[n] = smem_address(&team.coefficients[0][local[n]][4 * unit]);
      }
    }
    __device__ __forceinline__ void load(const Pass& p, const Tiles& tiles, int i) const {
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        int s = min(tiles.row(i) + local[n], p.rows - 1);
        if (p.source != nullptr) s = p.source[s];
        if (from[n] != nullptr)
          copy16_async(to[n] + i % 2 * sizeof(Team::coefficients) / 2, from[n] + int64_t{s} * step[n]);
      }
      copy_async_commit();
    }
  };

  static __device__ __forceinline__ void receive_sums(const Pass& p, const Shared& shared, Team& team, int barrier,
                                                      const Tiles& tiles, const Coefficients& coefficients,
                                                      uint32_t tag, const uint64_t* squares, const uint64_t* products) {
    const int lane = threadIdx.x % 32, slices = gridDim.x;
    int waiting = 0;  // rows whose products are complete
    const auto finish_rows = [&] {
      __syncwarp();
      make_coefficients(p, shared.base, shared.scale, team.finish, team.finish_row, waiting);
      waiting = 0;
      __syncwarp();
    };

    for (int i = 0; i < (kExchange ? tiles.count + kLag : tiles.count); ++i) {
      if (i + 1 < tiles.count) coefficients.load(p, tiles, i + 1);
      const int ready = i - kLag;
      const uint32_t expected = tag + 1 + ready;
      const int64_t slot = int64_t{static_cast<int>(expected % kRing)} * slices;
      float product = 0;
      int row = kRows, first = 0;  // the row of tile `ready` whose coefficients are made here, if any
      if (kExchange && ready >= 0) {
        if constexpr (Mix) {
          // The rows of a tile are dealt to the slices, from another one on for each tile.
          first = tiles.row(ready);
          const int start = (first + (tiles.first + ready) * kRows) % slices;
          row = blockIdx.x < start ? blockIdx.x + slices - start : blockIdx.x - start;
          if (first + row >= p.rows) row = kRows;
        }
        // Squares of x: lane (half, local) adds every second slice. With the usual number of slices there is at most one row
        // of products, and it comes along.
        const int half = lane / kRows, local = lane % kRows;
        const uint64_t* from = squares + (slot + half) * kRows + local;
        float sum;
        if (slices == kUsualSlices) {
          const bool along = row < kRows && lane < kSent;
          const float2 both = receive_both<kUsualSlices / 2, 2 * kRows, kUsualSlices, kRows * kSent>(
              from, along ? products + (slot * kRows + row) * kSent + lane : nullptr, expected);
          sum = both.x;
          product = both.y;
        } else {
          sum = receive_sum(from, 2 * kRows, (slices - half + 1) / 2, expected);
        }
        sum += __shfl_xor_sync(kFullWarp, sum, kRows);
        if (lane < kRows) team.x_scale[ready % 2][lane] = inverse_rms(sum, p.d, p.norm_eps);
      }
      copy_async_wait<0>();
      named_barrier(barrier, kTeamThreads);
      for (; row < kRows && first + row < p.rows; row += slices) {
        if (lane < kSent) {
          if (slices != kUsualSlices)
            product = receive_sum(products + (slot * kRows + row) * kSent + lane, kRows * kSent, slices, expected);
          team.finish[waiting][lane] = product;
          if (lane == 0) team.finish_row[waiting] = first + row;
        }
        if (++waiting == kFinishRows) finish_rows();
      }
    }
    if constexpr (Mix) finish_rows();
  }

  static __device__ __forceinline__ void run(const Pass& p) {
    extern __shared__ __align__(128) uint8_t bytes[];
    auto& shared = *reinterpret_cast<Shared*>(bytes);
    const int teams = blockDim.x / kTeamThreads, number = threadIdx.x / kTeamThreads;
    const int warp = threadIdx.x % kTeamThreads / 32, slices = gridDim.x, all = (p.rows + kRows - 1) / kRows;
    Team& team = shared.team[number];
    const int first = blockIdx.y + number * gridDim.y, step = teams * gridDim.y;
    const Tiles tiles{first, step, first < all ? (all - first + step - 1) / step : 0};
    const int channel = blockIdx.y * kTeams + number;
    Compute work(p, shared, team, tiles, warp);
    const Coefficients coefficients(p, team);
    const Carrier carrier(p, team, tiles);
    if (Mix && warp < kWarps && work.active)
      teams == 1 ? load_fn<kCopies>(p, work.column, 0, shared.fn[warp])
                 : load_fn<kCopies / kTeams>(p, work.column, number * (kCopies / kTeams), shared.fn[warp]);
    if (Mix && threadIdx.x < kMixes) shared.base[threadIdx.x] = p.base[threadIdx.x];
    if (Mix && threadIdx.x < 3) shared.scale[threadIdx.x] = p.scale[threadIdx.x];
    if (warp == kCarries && threadIdx.x % 32 == 0) {
      for (uint64_t& full : team.full) mbarrier_init(&full, 1);
      mbarrier_init_fence();
      if (p.source == nullptr && p.y_source == nullptr) {
        prefetch_map(&p.h_boxes);
        if constexpr (Write) prefetch_map(&p.y_boxes);
      }
    }
    wait_for_previous();
    let_next_start();
    if (warp == kCarries) {
      __syncwarp();
      for (int i = 0; i < kStages; ++i) carrier.fetch(i);
    } else if (warp == kWarps && tiles.count > 0) {
      coefficients.load(p, tiles, 0);
      if (kExchange && threadIdx.x % 32 == 0) team.tag = __ldcg(p.tags + channel);
      copy_async_wait<0>();
    }
    __syncthreads();
    if (tiles.count == 0) return;
    uint64_t* squares = p.squares + int64_t{channel} * kRing * slices * kRows;
    uint64_t* products = p.products + int64_t{channel} * kRing * slices * kRows * kSent;
    if (warp < kWarps) {
      work.run(carrier, 1 + number, squares, products);
    } else {
      const uint32_t tag = team.tag;
      receive_sums(p, shared, team, 1 + number, tiles, coefficients, tag, squares, products);
      // Every slice has sent its last sums, and had read its tag before.
      if (kExchange && blockIdx.x == 0 && threadIdx.x % 32 == 0) p.tags[channel] = tag + tiles.count;
      // Without mixing the coefficients stay what they are.
      if (!Mix && p.pre_out != nullptr && blockIdx.x == 0)
        for (int i = 0; i < tiles.count; ++i)
          for (int n = threadIdx.x % 32; n < kRows * kCopies; n += 32) {
            const int row = tiles.row(i) + n / kCopies;
            if (row >= p.rows) continue;
            const int64_t s = p.source != nullptr ? p.source[row] : row;
            p.pre_out[int64_t{row} * kCopies + n % kCopies] = p.pre[s * kCopies + n % kCopies];
          }
    }
  }
};

template <bool Write, bool Collapse, bool Mix>
__global__ void __launch_bounds__(kTeams* kTeamThreads, 1) streams_kernel(const __grid_constant__ Pass p) {
  Streams<Write, Collapse, Mix>::run(p);
}

template <bool Write, bool Collapse, bool Mix>
void launch_streams(CudaContext& cuda, const Pass& p) {
  const int slices = (p.d + kColumns - 1) / kColumns, tiles = (p.rows + kRows - 1) / kRows;
  const int groups = std::min(tiles, cuda.multiprocessors() / slices);
  const int teams = tiles > groups ? kTeams : 1;
  launch("streams", streams_kernel<Write, Collapse, Mix>,
         {.grid = dim3(slices, groups),
          .block = dim3(teams * kTeamThreads),
          .shared = Shared::bytes(teams),
          .stream = cuda.stream(),
          .cooperative = Collapse || Mix,
          .early = true},
         p);
}

}  // namespace

bool streams_take(const CudaContext& cuda, const HyperConnectionArgs& args) {
  return args.copies == kCopies && args.d % 32 == 0 && (args.d + kColumns - 1) / kColumns <= cuda.multiprocessors();
}

void hyper_connection_streams(CudaContext& cuda, const HyperConnectionArgs& args) {
  const bool write = static_cast<bool>(args.y), mix = args.mix != nullptr;
  const bool collapse = args.norm != nullptr || static_cast<bool>(args.collapsed);
  Pass p{};
  p.rows = args.rows, p.d = args.d, p.sinkhorn_iters = args.sinkhorn_iters;
  p.hc_eps = args.hc_eps, p.norm_eps = args.norm_eps;
  p.h = args.in.h.bf16();
  if (args.in.pre) p.pre = args.in.pre.f32();
  if (write) p.post = args.in.post.f32(), p.comb = args.in.comb.f32(), p.y = args.y.bf16();
  p.source = args.source, p.y_source = args.y_source;
  // Rows that stay as they are and where they are need no second writing.
  if (args.out.h && (write || args.out.h.data != args.in.h.data)) p.h_out = args.out.h.bf16();
  if (args.norm != nullptr) p.x = args.x.bf16();
  if (args.collapsed) p.collapsed = args.collapsed.bf16();
  if (p.source == nullptr && p.y_source == nullptr) {
    p.h_boxes = slice_boxes(p.h, args.rows, kCopies, args.d, kRows, kColumns);
    if (write) p.y_boxes = slice_boxes(p.y, args.rows, 1, args.d, kRows, kColumns);
  }
  if (p.h_out != nullptr) p.h_out_boxes = slice_boxes(p.h_out, args.rows, kCopies, args.d, kRows, kColumns);
  p.norm = args.norm;
  if (mix) p.fn = args.mix->fn, p.base = args.mix->base, p.scale = args.mix->scale;
  if (args.out.pre) p.pre_out = args.out.pre.f32();
  if (mix) p.post_out = args.out.post.f32(), p.comb_out = args.out.comb.f32();
  if (mix || collapse) {
    // What CTAs send each other, laid out by the number of slices alone.
    const int slices = (args.d + kColumns - 1) / kColumns, channels = cuda.multiprocessors() / slices * kTeams;
    const size_t words = static_cast<size_t>(channels) * kRing * slices * kRows;
    auto* memory = static_cast<uint64_t*>(
        cuda.lasting(std::string("hyper-connections of ") + std::to_string(slices) + " slices",
                     words * (1 + kSent) * sizeof(uint64_t) + static_cast<size_t>(channels) * sizeof(uint32_t)));
    p.squares = memory;
    p.products = memory + words;
    p.tags = reinterpret_cast<uint32_t*>(memory + words * (1 + kSent));
  }

  const auto choose = [](bool on, const auto& then) { on ? then(std::true_type{}) : then(std::false_type{}); };
  choose(write, [&](auto w) {
    choose(collapse, [&](auto c) {
      choose(mix, [&](auto m) { launch_streams<decltype(w)::value, decltype(c)::value, decltype(m)::value>(cuda, p); });
    });
  });
}

}  // namespace hadal::cuda
