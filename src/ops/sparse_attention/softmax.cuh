// What the matrix kernels do between and after their products, so that they give the same bits: the running maximum over
// tiles of 64 keys, probabilities, the sums of the denominator, the output.
//
// A query's keys come in tiles of 64, tiles of even and of odd number each with sums of their own:
//   top = max(top, largest score of the tile * scale);  f = 2^(old top - top)
//   values *= f;  even total *= f;  odd total *= f;  e = 2^(score * scale - top);  values += bf16(e) V
//   even or odd total += sum of e. Lane t of a quad has the 16 keys 16t .. 16t + 15 of every tile.
// The denominator is (even total before the last tile's factor) * factor + odd total + sink. Tiles come in pairs.
//
// A thread's rows (heads) are warp * 16 + lane / 4 and 8 more; its columns of an 8-wide block are 2 (lane % 4) and the next.
#pragma once

#include "ops/cuda/hopper.cuh"
#include "ops/sparse_attention/expand.cuh"
#include "ops/types.h"

namespace hadal::cuda {

inline constexpr int kHeads = 64;
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kNoTop = -1e30f;

__device__ __forceinline__ float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
// Of four values a lane, value t of lane t summed over its quad, in the order of quad_sum.
__device__ __forceinline__ float quad_sum_own(const float (&v)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, upper = (threadIdx.x & 2) != 0;
  const float first = (odd ? v[1] : v[0]) + __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1);
  const float second = (odd ? v[3] : v[2]) + __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
  return (upper ? second : first) + __shfl_xor_sync(0xffffffffu, upper ? first : second, 2);
}
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Of 16 keys: -inf for those from key `valid` on (counted from the lane's first column).
__device__ __forceinline__ void mask_scores(float* score, int valid) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (8 * (i >> 2) + (i & 1) >= valid) score[i] = -INFINITY;
}
// The largest score of 16 keys joins `largest`, by row.
__device__ __forceinline__ void largest_scores(const float* score, float (&largest)[2]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) largest[i >> 1 & 1] = fmaxf(largest[i >> 1 & 1], score[i]);
}

// Probabilities of 16 keys, as the matrix operand that they are, and the lane's share of their sum, by row. scale: from
// scores to powers of two.
__device__ __forceinline__ void probabilities(float* score, float scale, const float (&top)[2], uint32_t (&operand)[4],
                                              float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) score[i] = exp2_fast(fmaf(score[i], scale, -top[i >> 1 & 1]));
#pragma unroll
  for (int i = 0; i < 4; ++i) operand[i] = pack_bf16x2(score[2 * i], score[2 * i + 1]);
#pragma unroll
  for (int i = 0; i < 2; ++i) sum[i] = (score[2 * i] + score[2 * i + 1]) + (score[2 * i + 4] + score[2 * i + 5]);
}

// From the parts of four blocks that each lane of a quad has: all four parts of block t, on lane t.
__device__ __forceinline__ uint4 transpose_quad(const uint32_t (&v)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, upper = (threadIdx.x & 2) != 0;
  uint32_t low[2], high[2];  // of blocks (t & 1) and (t & 1) + 2: the parts of lanes t & 2 and (t & 2) + 1
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t keep = odd ? v[2 * h + 1] : v[2 * h], give = odd ? v[2 * h] : v[2 * h + 1];
    const uint32_t other = __shfl_xor_sync(0xffffffffu, give, 1);
    low[h] = odd ? other : keep;
    high[h] = odd ? keep : other;
  }
  const uint32_t other_low = __shfl_xor_sync(0xffffffffu, upper ? low[0] : low[1], 2);
  const uint32_t other_high = __shfl_xor_sync(0xffffffffu, upper ? high[0] : high[1], 2);
  return upper ? make_uint4(other_low, other_high, low[1], high[1])
               : make_uint4(low[0], high[0], other_low, other_high);
}

// Columns first .. first + Columns - 1 of a query's output: the division, the rotation back, the store. out: the query's
// first value. rotations: of the last rope_dim channels.
template <int Columns>
__device__ __forceinline__ void store_output(const float* sum, const float (&denominator)[2], uint16_t* out, int head,
                                             int first, int rope_dim, const float2* rotations) {
  const int lane = threadIdx.x % 32;
  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) inverse[i] = 1.0f / (denominator[i] * kStoredScale);
  // Lane t of a quad stores block 4 c + t of 8 columns.
  out += head * kHeadDim + first + 8 * (lane & 3);
  const int rotated = kHeadDim - rope_dim - first;
#pragma unroll
  for (int c = 0; c < Columns / 32; ++c)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t four[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int j = 4 * c + b;
        four[b] = pack_bf16x2(sum[4 * j + 2 * i] * inverse[i], sum[4 * j + 2 * i + 1] * inverse[i]);
        if (8 * (j + 8) >= Columns && 8 * j >= rotated) {  // at most the last 64 channels
          const float2 cs = rotations[(8 * j - rotated) / 2 + (lane & 3)];
          const float x = __uint_as_float(four[b] << 16), y = __uint_as_float(four[b] & 0xffff0000u);
          four[b] = pack_bf16x2(x * cs.x + y * cs.y, y * cs.x - x * cs.y);
        }
      }
      *reinterpret_cast<uint4*>(out + i * 8 * kHeadDim + 32 * c) = transpose_quad(four);
    }
}

}  // namespace hadal::cuda
