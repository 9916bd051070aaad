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

#include "ops/cuda/fp8_rows.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/sparse_attention/expand.cuh"
#include "ops/sparse_attention/kernels.h"

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

__device__ __forceinline__ uint32_t larger_bf16x2(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
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

// Probabilities of 16 keys, as the matrix operand that they are, and the lane's share of their sum, by row: from scores in
// powers of two less the maximum, and from scores and what makes them powers of two.
__device__ __forceinline__ void probabilities(float* score, uint32_t (&operand)[4], float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) score[i] = exp2_fast(score[i]);
#pragma unroll
  for (int i = 0; i < 4; ++i) operand[i] = pack_bf16x2(score[2 * i], score[2 * i + 1]);
#pragma unroll
  for (int i = 0; i < 2; ++i) sum[i] = (score[2 * i] + score[2 * i + 1]) + (score[2 * i + 4] + score[2 * i + 5]);
}
__device__ __forceinline__ void probabilities(float* score, float scale, const float (&top)[2], uint32_t (&operand)[4],
                                              float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) score[i] = fmaf(score[i], scale, -top[i >> 1 & 1]);
  probabilities(score, operand, sum);
}

// Values 4 j + 2 i and the next of a thread's sums, divided and rounded.
__device__ __forceinline__ uint32_t output_pair(const float* sum, int j, int i, const float (&inverse)[2]) {
  return pack_bf16x2(sum[4 * j + 2 * i] * inverse[i], sum[4 * j + 2 * i + 1] * inverse[i]);
}
// Rotated channels, which are those from column `rotated` on (at most the last 64 of the 8 * Blocks), turned back and rounded
// again. All rotations are asked for together.
template <int Blocks>
__device__ __forceinline__ void turn_back(uint32_t (&part)[Blocks][2], int rotated, const float2* rotations) {
  if (rotated >= 8 * Blocks) return;
  float2 cs[8];
#pragma unroll
  for (int b = 0; b < 8; ++b) cs[b] = rotations[max(8 * (Blocks - 8 + b) - rotated, 0) / 2 + threadIdx.x % 4];
#pragma unroll
  for (int b = 0; b < 8; ++b)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t& pair = part[Blocks - 8 + b][i];
      const float x = __uint_as_float(pair << 16), y = __uint_as_float(pair & 0xffff0000u);
      const uint32_t turned = pack_bf16x2(x * cs[b].x + y * cs[b].y, y * cs[b].x - x * cs[b].y);
      if (8 * (Blocks - 8 + b) >= rotated) pair = turned;
    }
}

// A warp's 16 rows of Chunks pieces of 16 bytes, through its 2 KB of shared memory: words(k) gives the thread's words of chunks
// 2k and 2k + 1 of both rows as a matrix fragment has them, and store(row, chunk, v) gets 16 bytes of whole lines. (Exchanged
// between lanes instead, they took three times the instructions.)
template <int Chunks, typename Words, typename Store>
__device__ __forceinline__ void through_lines(uint32_t staging, const Words& words, const Store& store) {
  constexpr int kRows = 32 / Chunks;  // at a time
  const int lane = threadIdx.x % 32, chunk = lane % Chunks;
  const uint32_t to = staging + (lane & 15) * 128, from = staging + lane / Chunks * 128;
#pragma unroll
  for (int k = 0; k < Chunks / 2; ++k) {
    const auto w = words(k);
    store_matrix4(to + (((2 * k + (lane >> 4)) ^ (lane & 7)) << 4), w.x, w.y, w.z, w.w);
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < 16 / kRows; ++r) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from + r * kRows * 128 + ((chunk ^ (kRows * r % 8 + lane / Chunks)) << 4))
                 : "memory");
    store(kRows * r + lane / Chunks, chunk, v);
  }
}

// Q4 of a thread's part of 8 * Blocks columns from column `first` on: 128, or a half of a group's. meet: of the largest
// magnitudes of these in the thread's two rows makes those of their groups.
template <int Blocks, typename Meet>
__device__ __forceinline__ void store_q4(const uint32_t (&part)[Blocks][2], const Fp8Rows& out, int query, int head,
                                         int first, uint32_t staging, const Meet& meet) {
  constexpr int kGroups = kHeadDim / 128;
  const int lane = threadIdx.x % 32, warp_head = head - lane / 4, group = first / 128, first_chunk = first % 128 / 16;
  float largest[2], inverse[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t both = 0;
#pragma unroll
    for (int b = 0; b < Blocks; ++b) both = larger_bf16x2(both, part[b][i] & 0x7fff7fffu);
    largest[i] = quad_max(fmaxf(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u)));
  }
  meet(largest);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float scale = from_ue8m0(q1_scale(largest[i]));
    inverse[i] = reciprocal_of_power(scale);
    if ((lane & 3) == 0 && first_chunk == 0)
      out.scales[static_cast<int64_t>((head + 8 * i) * kGroups + group) * out.padded + query] = scale;
  }
  // A word has the lane's codes of two blocks of 8 columns, and so a chunk the four lanes' one after the other.
  const auto word = [&](int k, int i) {
    uint32_t w = 0;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const uint32_t v = part[2 * k + b][i];
      w |= e4m3_pair(__uint_as_float(v << 16) * inverse[i], __uint_as_float(v & 0xffff0000u) * inverse[i]) << 16 * b;
    }
    return w;
  };
  through_lines<Blocks / 2>(
      staging,
      [&](int k) { return make_uint4(word(2 * k, 0), word(2 * k, 1), word(2 * k + 1, 0), word(2 * k + 1, 1)); },
      [&](int row, int chunk, uint4 v) {
        *reinterpret_cast<uint4*>(fp8_chunk(out, (warp_head + row) * kGroups + group, query, first_chunk + chunk)) =
            make_uint4(permute_bytes(v.x, v.y, 0x5410), permute_bytes(v.z, v.w, 0x5410),
                       permute_bytes(v.x, v.y, 0x7632), permute_bytes(v.z, v.w, 0x7632));
      });
}

struct NobodyElse {  // has a part of a group of 128 columns
  __device__ void operator()(const float (&)[2]) const {}
};

// Columns first .. first + Columns - 1 of the output of `query`: the division, the rotation back, the store, of bf16 or of
// their Q4. rotations: of the last rope_dim channels. staging: 2 KB of shared memory of each of the four warps. meet: of 64
// columns, as store_q4 has it. Leaves nothing of `sum`.
template <int Columns, typename Meet = NobodyElse>
__device__ __forceinline__ void store_output(float* sum, const float (&denominator)[2], const AttentionProblem& p,
                                             int query, int head, int first, int rope_dim, const float2* rotations,
                                             uint8_t* staging, const Meet& meet = {}) {
  const int warp_head = head - static_cast<int>(threadIdx.x) % 32 / 4;
  const uint32_t base = smem_address(staging) + warp_head * 128;
  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) inverse[i] = 1.0f / (denominator[i] * kStoredScale);
  if (p.o_q4.codes != nullptr) {
    constexpr int kPart = Columns < 128 ? Columns : 128, kBlocks = kPart / 8;
    // Few queries run this once: instructions that come from memory cost more than the moves of a loop.
#pragma unroll 1
    for (int c = 0; c < Columns / kPart; ++c, first += kPart) {
      uint32_t part[kBlocks][2];  // [block of 8 columns][row]
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
#pragma unroll
        for (int i = 0; i < 2; ++i) part[b][i] = output_pair(sum, b, i, inverse);
      turn_back(part, kHeadDim - rope_dim - first, rotations);
#pragma unroll
      for (int i = 0; i < Columns / 2 - kPart / 2; ++i) sum[i] = sum[i + kPart / 2];
      if (c > 0) __syncwarp();
      store_q4(part, p.o_q4, query, head, first, base, meet);
    }
    return;
  }
  uint16_t* const values =
      static_cast<uint16_t*>(p.args.o.data) + (static_cast<int64_t>(query) * kHeads + warp_head) * kHeadDim + first;
#pragma unroll
  for (int c = 0; c < Columns / 64; ++c) {
    uint32_t part[8][2];
#pragma unroll
    for (int b = 0; b < 8; ++b)
#pragma unroll
      for (int i = 0; i < 2; ++i) part[b][i] = output_pair(sum, 8 * c + b, i, inverse);
    if (c == Columns / 64 - 1) turn_back(part, kHeadDim - rope_dim - first - 64 * c, rotations);
    if (c > 0) __syncwarp();
    through_lines<8>(
        base, [&](int k) { return make_uint4(part[2 * k][0], part[2 * k][1], part[2 * k + 1][0], part[2 * k + 1][1]); },
        [&](int row, int chunk, uint4 v) {
          *reinterpret_cast<uint4*>(values + row * kHeadDim + 64 * c + 8 * chunk) = v;
        });
  }
}

}  // namespace hadal::cuda
