// What both score kernels share: a packed key as bf16 operands.
#pragma once

#include "ops/cuda/codec.cuh"
#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

// Eight FP4 codes (low nibble first) times a power of two, as four bf16 pairs. The codes are moved into a bf16 with a wrong
// exponent bias, which a multiplication by 2^126 repairs.
__device__ __forceinline__ void decode_fp4(uint32_t codes, uint8_t scale, uint32_t (&out)[4]) {
  constexpr uint32_t kBias = 0x7e807e80u;
  uint32_t s = ue8m0_to_bf16(scale);
  s |= s << 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t two = codes >> (8 * i);
    const uint32_t pair = (two & 0xfu) | ((two & 0xf0u) << 12);
    out[i] = multiply_bf16x2(multiply_bf16x2(((pair & 0x00070007u) << 6) | ((pair & 0x00080008u) << 12), kBias), s);
  }
}

// Channels 8t .. 8t+7 of every block of 32 of a key with Blocks * 32 channels.
template <int Blocks>
__device__ __forceinline__ void load_key(const uint8_t* row, int t, uint32_t (&out)[Blocks][4]) {
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    uint32_t codes;
    if constexpr (Blocks % 4 == 0) {  // rows of a multiple of 4 bytes
      codes = *reinterpret_cast<const uint32_t*>(row + 16 * b + 4 * t);
    } else {
      const uint8_t* c = row + 16 * b + 4 * t;
      codes = c[0] | (c[1] << 8) | (c[2] << 16) | (static_cast<uint32_t>(c[3]) << 24);
    }
    decode_fp4(codes, row[16 * Blocks + b], out[b]);
  }
}

// One head's share of a score. `official` rounds the dot product and the product.
template <bool Official>
__device__ __forceinline__ float head_product(float w, float dot) {
  if constexpr (Official) return round_bf16(w * fmaxf(round_bf16(dot), 0.0f));
  return w * fmaxf(dot, 0.0f);
}

}  // namespace hadal::cuda
