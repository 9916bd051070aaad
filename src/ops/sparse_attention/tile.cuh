// Packed rows straight into a tile of the matrix instruction: four threads a row; each takes 64 of the 256 channels of a half
// row at a time.
#pragma once

#include "ops/sparse_attention/expand.cuh"

namespace hadal::cuda {

inline constexpr int kTileKeys = 64;
inline constexpr int kSlabBytes = kTileKeys * 128;  // 64 keys x 64 channels, 128-byte swizzle

// What a thread has read of its row ahead of time, 64 channels: an entry's two pieces of codes, of a window row the first two
// of four. (Holding all of a window row costs registers that these warps lack, and spilled registers cost more than the
// late loads: local memory misses L1 beside 227 KB of shared memory.)
struct PackedPart {
  uint64_t row;  // address of the thread's codes, with kIsEntry
  uint4 codes[2];
  uint32_t scales;
};

// A load that stays where it is written: the compiler would move an ordinary one down to its use, behind the wait for a
// free tile, and expose its latency.
__device__ __forceinline__ uint4 load_early(const uint8_t* p) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_early_word(const uint8_t* p) {
  uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ PackedPart load_part(uint64_t row, int half, int side) {
  PackedPart r;
  const int channel = half * 256 + side * 64;
  const bool entry = (row & kIsEntry) != 0;
  const auto* codes = reinterpret_cast<const uint8_t*>(row & ~kIsEntry) + (entry ? channel / 2 : channel);
  const auto* scales = reinterpret_cast<const uint8_t*>(row & ~kIsEntry) +
                       (entry ? kHeadDim / 2 + channel / 16 : kHeadDim + (channel & ~127) / 32);
  r.row = reinterpret_cast<uint64_t>(codes) | (row & kIsEntry);
  r.codes[0] = load_early(codes);
  r.codes[1] = load_early(codes + 16);
  r.scales = load_early_word(scales);
  return r;
}

// tile: eight slabs. Row r of the tile, its half and side as loaded.
__device__ __forceinline__ void store_part(uint8_t* tile, int r, PackedPart& part, int half, int side) {
  // Of unknown origin to the compiler: it would keep the 32 addresses of all tiles and chunks in registers over the loop.
  uint32_t at = smem_address(tile) + (half * 4 + side) * kSlabBytes + r * 128, swizzle = (r & 7) << 4;
  asm volatile("" : "+r"(at), "+r"(swizzle));
  const auto store = [&](uint32_t chunk, uint4 v) {  // chunk of 8 channels
    // Volatile: one chunk after the other. All at once needs more registers than these warps have.
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at + ((chunk << 4) ^ swizzle)), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
  };
  if ((part.row & kIsEntry) != 0) {
    expand_entry(part.codes, part.scales, store);
  } else {
    const auto* codes = reinterpret_cast<const uint8_t*>(part.row);
    const uint32_t scales = part.scales >> (side % 2 * 16);  // two of the four bytes that were read
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t factor = window_factor(scales >> (8 * i));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        expand_window(part.codes[j], factor, 4 * i + 2 * j, store);
        if (i == 0) part.codes[j] = load_early(codes + 32 + 16 * j);
      }
    }
  }
}

}  // namespace hadal::cuda
