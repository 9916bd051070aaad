// Packed latent rows -> bf16 in the layout of the matrix instruction. Four threads a row; each takes 64 of the 256
// channels of a half row at a time.
//
// All values are stored times 2^-8. A code moved to the low end of a bf16's exponent needs a factor up to 2^126 times its
// group's scale; with 2^-8 that factor is one bf16 for every scale that occurs, so one multiplication decodes two values
// exactly. The softmax scale and the last division take the 2^8 back.
#pragma once

#include <cstdint>

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

inline constexpr int kHeadDim = 512;
inline constexpr int kTileKeys = 64;
inline constexpr int kSlabBytes = kTileKeys * 128;  // 64 keys x 64 channels, 128-byte swizzle
inline constexpr float kStoredScale = 0x1p-8f;

enum class RowKind : int { none, window, entry };

// What a thread has read of its row, 64 channels.
struct PackedPart {
  uint4 codes[4];   // an entry uses the first two
  uint32_t scales;
  RowKind kind;
};

__device__ __forceinline__ PackedPart load_part(const uint8_t* row, RowKind kind, int half, int side) {
  PackedPart r;
  r.kind = kind;
  const int channel = half * 256 + side * 64;
  if (kind == RowKind::window) {
#pragma unroll
    for (int i = 0; i < 4; ++i) r.codes[i] = __ldg(reinterpret_cast<const uint4*>(row + channel) + i);
    r.scales = __ldg(reinterpret_cast<const uint16_t*>(row + kHeadDim + channel / 32));
  } else if (kind == RowKind::entry) {
#pragma unroll
    for (int i = 0; i < 2; ++i) r.codes[i] = __ldg(reinterpret_cast<const uint4*>(row + channel / 2) + i);
    r.scales = __ldg(reinterpret_cast<const uint32_t*>(row + kHeadDim / 2 + channel / 16));
  }
  return r;
}

// Four E4M3 codes, two bf16 pairs.
__device__ __forceinline__ void expand_e4m3(uint32_t codes, uint32_t factor, uint32_t& low, uint32_t& high) {
  const uint32_t a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424);  // codes in the upper bytes
  low = multiply_bf16x2((a & 0x80008000u) | ((a >> 4) & 0x07f007f0u), factor);
  high = multiply_bf16x2((b & 0x80008000u) | ((b >> 4) & 0x07f007f0u), factor);
}

// Eight E2M1 codes, low nibble first, four bf16 pairs.
__device__ __forceinline__ uint4 expand_e2m1(uint32_t codes, uint32_t factor) {
  const uint32_t even = codes & 0x0f0f0f0fu, odd = (codes >> 4) & 0x0f0f0f0fu;
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // bytes: even code, 0, odd code, 0; the upper bytes are cleared by the masks below
    const uint32_t pair = __byte_perm(even, odd, i | (i << 4) | ((4 + i) << 8) | ((4 + i) << 12));
    out[i] = multiply_bf16x2(((pair << 12) & 0x80008000u) | ((pair << 6) & 0x01c001c0u), factor);
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// The bf16 pair of an E4M3 scale times 2^118, for E2M1 codes at 2^-126.
__device__ __forceinline__ uint32_t entry_factor(uint32_t code) {
  const uint32_t bits = (code & 0x7f) << 4;  // the scale times 2^-120
  constexpr uint32_t k119 = 0x7b007b00u;
  return multiply_bf16x2(multiply_bf16x2(bits | bits << 16, k119), k119);
}

// tile: eight slabs. Row r of the tile, its half and side as loaded. A row that is no key is stored as zeros, since 0 times
// what was there before might be NaN.
__device__ __forceinline__ void store_part(uint8_t* tile, int r, const PackedPart& row, int half, int side) {
  uint8_t* at = tile + (half * 4 + side) * kSlabBytes + r * 128;
  const int swizzle = r & 7;
  const auto store = [&](int chunk, uint4 v) {  // chunk of 8 channels
    *reinterpret_cast<uint4*>(at + ((chunk ^ swizzle) << 4)) = v;
  };
  if (row.kind == RowKind::window) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t scale = (row.scales >> (8 * (i >> 1))) & 0xff;
      const uint32_t field = min(scale + 112, 254u) << 7;  // 2^(120 - 8) times 2^(scale - 127)
      const uint32_t factor = field | field << 16;
      uint4 v;
      expand_e4m3(row.codes[i].x, factor, v.x, v.y);
      expand_e4m3(row.codes[i].y, factor, v.z, v.w);
      store(2 * i, v);
      expand_e4m3(row.codes[i].z, factor, v.x, v.y);
      expand_e4m3(row.codes[i].w, factor, v.z, v.w);
      store(2 * i + 1, v);
    }
  } else if (row.kind == RowKind::entry) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t first = entry_factor(row.scales >> (16 * i)), second = entry_factor(row.scales >> (16 * i + 8));
      store(4 * i, expand_e2m1(row.codes[i].x, first));
      store(4 * i + 1, expand_e2m1(row.codes[i].y, first));
      store(4 * i + 2, expand_e2m1(row.codes[i].z, second));
      store(4 * i + 3, expand_e2m1(row.codes[i].w, second));
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) store(i, make_uint4(0, 0, 0, 0));
  }
}

}  // namespace hadal::cuda
