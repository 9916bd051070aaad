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

// The tile of a grouped row, from the cuts of its slot.
__device__ __forceinline__ Fp8Tile tile_of(int4 cut, int row, int groups) {
  const int first = (row - cut.x) / cut.y * cut.y;
  return {cut.x + first, min(cut.y, cut.z - first), groups};
}

constexpr int kMostExperts = 32;  // of a row
struct RowPlaces {
  Fp8Tile tile[kMostExperts];
  int row[kMostExperts];  // within the tile, -1 where the expert is not local
  uint32_t largest;       // of the row; zero at the start
};

// Rounds a row and puts it into the tiles of its experts; a block of whole warps.
__device__ __forceinline__ void round_row(const RowsToRound& r, int row, RowPlaces& places, int topk) {
  const uint16_t* x = r.x + static_cast<size_t>(row) * r.d;
  const int t = threadIdx.x, threads = static_cast<int>(blockDim.x);
  uint32_t largest = 0;
  for (int i = t; i < r.d / 8; i += threads) largest = larger(largest, *reinterpret_cast<const uint4*>(x + 8 * i));
  largest = warp_largest(largest);
  if (t % 32 == 0) atomicMax(&places.largest, largest);
  __syncthreads();
  const float scale = row_scale_of(places.largest), inverse = reciprocal_of_power(scale);
  for (int i = t; i < r.d / 16; i += threads) {  // 16 bytes of codes, two units
    const int group = i / 8, chunk = i % 8;
    const uint2 first = round_unit(x + group * 128 + unit_column(2 * chunk), inverse);
    const uint2 second = round_unit(x + group * 128 + unit_column(2 * chunk + 1), inverse);
    for (int k = 0; k < topk; ++k)
      if (places.row[k] >= 0)
        *reinterpret_cast<uint4*>(r.codes + unit_at(places.tile[k], group, places.row[k], 2 * chunk)) =
            make_uint4(first.x, first.y, second.x, second.y);
  }
  if (t < topk && places.row[t] >= 0) r.scales[places.tile[t].row0 + places.row[t]] = scale;
}

}  // namespace hadal::cuda
