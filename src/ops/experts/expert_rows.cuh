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

// Q4 of 128 bf16 channels that 16 neighbouring lanes hold, eight each: the codes in the same order.
__device__ __forceinline__ uint2 round_unit(uint2 first, uint2 second, float& scale) {
  float v[8];
  unpack_bf16x8({first.x, first.y, second.x, second.y}, v);
  return q4_codes(v, scale);
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
};

// Rounds a row and puts it into the tiles of its experts; a block of whole warps, 16 lanes a group.
__device__ __forceinline__ void round_row(const RowsToRound& r, int row, const RowPlaces& places, int topk) {
  const int groups = r.d / 128, unit = threadIdx.x % 16, together = static_cast<int>(blockDim.x) / 16;
  for (int base = 0; base < groups; base += together) {
    const int group = base + static_cast<int>(threadIdx.x) / 16;
    // Lanes without a group take part in the shuffles.
    const uint16_t* from = r.x + (static_cast<size_t>(row) * groups + min(group, groups - 1)) * 128 + unit_column(unit);
    float scale;
    const uint2 codes =
        round_unit(*reinterpret_cast<const uint2*>(from), *reinterpret_cast<const uint2*>(from + 32), scale);
    if (group >= groups) continue;
    for (int k = 0; k < topk; ++k) {
      const int at = places.row[k];
      if (at < 0) continue;
      *reinterpret_cast<uint2*>(r.codes + unit_at(places.tile[k], group, at, unit)) = codes;
      if (unit == 0) r.scales[places.tile[k].scale(group, at)] = scale;
    }
  }
}

}  // namespace hadal::cuda
