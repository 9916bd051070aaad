// How packed expert weights lie in memory and how a warpgroup turns them into matrix operands.
//
// A packed matrix is cut into tiles of 256 rows x 64 columns, tile (m, k) at (m * (K / 64) + k) * kTileBytes, so that one
// row band streams contiguously. A tile is four blocks of 64 rows, each in the register order of the matrix instruction:
// thread t of a warpgroup finds all its weights of a block in one (MXFP4) or two (FP8) 16-byte loads. Then the scales:
// for block b, warp w, row pair g: {row g, row g+8} of the first 32 columns, {row g, row g+8} of the last 32.
// After all tiles comes one float a row, in tile order.
//
// Decoding is exact. The code's exponent and mantissa bits are moved to the low end of a bf16's exponent and the top of
// its mantissa; read as bf16 (subnormal codes become subnormal bf16) that is the value times a fixed power of two,
// and one multiplication by a power of two puts it right. A row's largest scale is taken out of its weights and applied
// to the fp32 sum instead, so that every scale byte from 0 to 254 works.
#pragma once

#include <cstdint>

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

inline constexpr int kTileM = 256;
inline constexpr int kTileK = 64;
inline constexpr int kScaleBytes = kTileM * 2;

// MXFP4. A 16-bit half holds one weight of each of the four A registers, where three of them need one shift to get to
// sign 15, code 8..6:   register 0: 15, 8..6    1: 12, 5..3    2: 9, 2..0    3: 14, 13 11 10
// 11 integer instructions and 4 multiplications decode 8 weights.
struct Mxfp4Codec {
  static constexpr int kBlockBytes = 2048;  // 64 rows x 64 columns
  static constexpr int kTileBytes = 4 * kBlockBytes + kScaleBytes;
  static constexpr int kExponent = 253;  // bf16 exponent field of 2^126: from the bit position to the value

  struct Raw {
    uint4 codes;
    uint32_t scales;
  };

  static __device__ __forceinline__ Raw load(const uint8_t* tile, int block, int thread) {
    Raw raw;
    raw.codes = *reinterpret_cast<const uint4*>(tile + block * kBlockBytes + thread * 16);
    raw.scales = *reinterpret_cast<const uint32_t*>(tile + 4 * kBlockBytes + block * 128 + (thread >> 2) * 4);
    return raw;
  }

  static __device__ __forceinline__ void word(uint32_t w, uint32_t scale_low, uint32_t scale_high, uint32_t* a) {
    constexpr uint32_t kMask = 0x81c081c0u;
    a[0] = multiply_bf16x2(w & kMask, scale_low);
    a[1] = multiply_bf16x2((w << 3) & kMask, scale_high);
    a[2] = multiply_bf16x2((w << 6) & kMask, scale_low);
    a[3] = multiply_bf16x2(((w << 1) & 0x80008000u) | ((w >> 4) & 0x00c000c0u) | ((w >> 5) & 0x01000100u), scale_high);
  }

  // The A operands of the four k16 steps.
  static __device__ __forceinline__ void decode(const Raw& raw, uint32_t (&a)[16]) {
    uint32_t scale[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) scale[i] = __byte_perm(raw.scales, 0, 0x4040 | i | (i << 8)) << 7;
    word(raw.codes.x, scale[0], scale[1], a);
    word(raw.codes.y, scale[0], scale[1], a + 4);
    word(raw.codes.z, scale[2], scale[3], a + 8);
    word(raw.codes.w, scale[2], scale[3], a + 12);
  }
};

// E4M3 with 32 x 32 scales. A 16-bit half holds two weights of one A register pair:
//   p: sign 15, code 10..4    q: sign 11, code 14..12 3..0
struct Fp8Codec {
  static constexpr int kBlockBytes = 4096;
  static constexpr int kTileBytes = 4 * kBlockBytes + kScaleBytes;
  static constexpr int kExponent = 247;  // 2^120

  struct Raw {
    uint4 codes[2];
    uint32_t scales;
  };

  static __device__ __forceinline__ Raw load(const uint8_t* tile, int block, int thread) {
    Raw raw;
    const uint8_t* p = tile + block * kBlockBytes + thread * 16;
    raw.codes[0] = *reinterpret_cast<const uint4*>(p);
    raw.codes[1] = *reinterpret_cast<const uint4*>(p + 2048);
    raw.scales = *reinterpret_cast<const uint32_t*>(tile + 4 * kBlockBytes + block * 128 + (thread >> 2) * 4);
    return raw;
  }

  static __device__ __forceinline__ void word(uint32_t w, uint32_t scale_low, uint32_t scale_high, uint32_t* a) {
    a[0] = multiply_bf16x2(w & 0x87f087f0u, scale_low);
    a[1] = multiply_bf16x2(((w << 4) & 0x80f080f0u) | ((w >> 4) & 0x07000700u), scale_high);
  }

  static __device__ __forceinline__ void decode(const Raw& raw, uint32_t (&a)[16]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t low = __byte_perm(raw.scales, 0, half ? 0x4242 : 0x4040) << 7;
      const uint32_t high = __byte_perm(raw.scales, 0, half ? 0x4343 : 0x4141) << 7;
      word(raw.codes[half].x, low, high, a + 8 * half);
      word(raw.codes[half].y, low, high, a + 8 * half + 2);
      word(raw.codes[half].z, low, high, a + 8 * half + 4);
      word(raw.codes[half].w, low, high, a + 8 * half + 6);
    }
  }
};

inline constexpr size_t packed_matrix_bytes(int m, int k, int tile_bytes) {
  return static_cast<size_t>(m / kTileM) * (k / kTileK) * tile_bytes + static_cast<size_t>(m) * sizeof(float);
}

}  // namespace hadal::cuda
