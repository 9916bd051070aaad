// Rounding of rows to FP8 as the matrix kernel reads them.
#pragma once

#include <cstdint>

#include "ops/cuda/fp8_rows.cuh"
#include "ops/experts/grouped.h"

namespace hadal::cuda {

// A row's 128 channels in kernel order (grouped.h) are 16 units of 8 bytes. Unit u has four channels from unit_column(u) on, and
// four from 32 channels further on.
__device__ __forceinline__ int unit_column(int unit) {
  return (unit & 1) * 64 + (unit >> 2) * 8 + ((unit >> 1) & 1) * 4;
}

// The larger of each half's magnitude in `largest` and of eight bf16.
__device__ __forceinline__ uint32_t larger(uint32_t largest, const uint4& v) {
  constexpr uint32_t kMagnitudes = 0x7fff7fffu;
  largest = __vmaxu2(__vmaxu2(largest, v.x & kMagnitudes), v.y & kMagnitudes);
  return __vmaxu2(__vmaxu2(largest, v.z & kMagnitudes), v.w & kMagnitudes);
}
// Q5: the scale of a row, from the magnitudes that the lanes of a warp found.
__device__ __forceinline__ uint32_t warp_largest(uint32_t largest) {
  return __reduce_max_sync(0xffffffffu, max(largest & 0xffff, largest >> 16));
}
__device__ __forceinline__ float row_scale_of(uint32_t largest) {
  return from_ue8m0(q1_scale(__uint_as_float(largest << 16)));
}

// The upper half of a float, which is all there is of a power of two down to 2^-126.
__device__ __forceinline__ uint16_t bf16_of_power(float scale) {
  return static_cast<uint16_t>(__float_as_uint(scale) >> 16);
}

// The codes of a unit: eight channels, at `from` and 32 channels further on.
__device__ __forceinline__ uint2 round_unit(const uint16_t* from, float inverse) {
  const uint2 first = *reinterpret_cast<const uint2*>(from), second = *reinterpret_cast<const uint2*>(from + 32);
  float v[8];
  unpack_bf16x8({first.x, first.y, second.x, second.y}, v);
  return {e4m3_pair(v[0] * inverse, v[1] * inverse) | e4m3_pair(v[2] * inverse, v[3] * inverse) << 16,
          e4m3_pair(v[4] * inverse, v[5] * inverse) | e4m3_pair(v[6] * inverse, v[7] * inverse) << 16};
}

// Where unit u of a row's group lies.
__device__ __forceinline__ size_t unit_at(const Fp8Tile& tile, int group, int row, int unit) {
  return tile.code(group, row) + (((unit >> 1) ^ (row & 7)) << 4) + (unit & 1) * 8;
}

constexpr int kMostExperts = 32;  // of a row
struct RowPlaces {
  Fp8Tile tile[kMostExperts];
  int row[kMostExperts];  // within the tile, -1 where the expert is not local
  uint32_t largest[32];   // of each warp
};

// A thread's 16 channels of a row, which are 16-byte chunk t % 8 of group t / 8 in kernel order: 4 (t % 8) + 32 j + i.
struct RowPart {
  uint2 v[4];  // [j], four channels
};
__device__ __forceinline__ RowPart load_part(const RowsToRound& r, int row) {
  RowPart part = {};
  const int t = threadIdx.x;
  const uint16_t* from = r.x + static_cast<size_t>(row) * r.d + t / 8 * 128 + t % 8 * 4;
  if (t < r.d / 16)
#pragma unroll
    for (int j = 0; j < 4; ++j) part.v[j] = *reinterpret_cast<const uint2*>(from + 32 * j);
  return part;
}
// Codes of four channels.
__device__ __forceinline__ uint32_t round4(uint2 bits, float inverse) {
  return e4m3_pair(__uint_as_float(bits.x << 16) * inverse, __uint_as_float(bits.x & 0xffff0000u) * inverse) |
         e4m3_pair(__uint_as_float(bits.y << 16) * inverse, __uint_as_float(bits.y & 0xffff0000u) * inverse) << 16;
}

// Q4 of the row in its own order: eight lanes a group.
__device__ __forceinline__ void store_row_q4(const Fp8Rows& out, int row, const RowPart& part, uint32_t largest) {
  const int group = threadIdx.x / 8, lane8 = threadIdx.x % 8;
  largest = max(largest & 0xffff, largest >> 16);
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  if (group >= out.columns / 128) return;
  const float scale = row_scale_of(largest), inverse = reciprocal_of_power(scale);
#pragma unroll
  for (int j = 0; j < 4; ++j)
    *reinterpret_cast<uint32_t*>(fp8_chunk(out, group, row, 2 * j + lane8 / 4) + lane8 % 4 * 4) =
        round4(part.v[j], inverse);
  if (lane8 == 0) out.scales[static_cast<int64_t>(group) * out.padded + row] = scale;
}

// Rounds a row and puts it into the tiles of its experts, which the first threads have written to `places`, and into
// r.shared. A block of whole warps, at least d / 16 threads.
__device__ __forceinline__ void round_row(const RowsToRound& r, int row, const RowPart& part, RowPlaces& places,
                                          int topk) {
  const int t = threadIdx.x, lane = t % 32, warps = static_cast<int>(blockDim.x) / 32;
  const uint32_t own = larger(larger(0, {part.v[0].x, part.v[0].y, part.v[1].x, part.v[1].y}),
                              {part.v[2].x, part.v[2].y, part.v[3].x, part.v[3].y});
  const uint32_t of_warp = warp_largest(own);
  if (lane == 0) places.largest[t / 32] = of_warp;
  if (r.shared.codes != nullptr) store_row_q4(r.shared, row, part, own);
  __syncthreads();
  const float scale = row_scale_of(__reduce_max_sync(0xffffffffu, lane < warps ? places.largest[lane] : 0));
  if (t < r.d / 16) {
    const float inverse = reciprocal_of_power(scale);
    const uint4 codes = {round4(part.v[0], inverse), round4(part.v[1], inverse), round4(part.v[2], inverse),
                         round4(part.v[3], inverse)};
    for (int k = 0; k < topk; ++k)
      if (places.row[k] >= 0)
        *reinterpret_cast<uint4*>(r.codes + unit_at(places.tile[k], t / 8, places.row[k], 2 * (t % 8))) = codes;
  }
  if (t < topk && places.row[t] >= 0) r.scales[places.tile[t].row0 + places.row[t]] = bf16_of_power(scale);
}

}  // namespace hadal::cuda
