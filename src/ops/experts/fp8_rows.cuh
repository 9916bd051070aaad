// Rounding of rows to FP8 as the matrix kernel reads them.
#pragma once

#include <cstdint>

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

// Of 128 channels in kernel order (grouped.h), unit u of sixteen bytes pairs is 8 codes: four channels from column(u), four from
// 32 columns further on.
__device__ __forceinline__ int unit_column(int unit) {
  return (unit & 1) * 64 + (unit >> 2) * 8 + ((unit >> 1) & 1) * 4;
}

// Q4: 16 neighbouring lanes hold 128 bf16 channels, eight each (in any order); all get the scale, each its codes.
__device__ __forceinline__ uint2 quantise_128(uint2 first, uint2 second, float& scale) {
  const uint32_t u[4] = {first.x, first.y, second.x, second.y};
  float x[8], largest = 1e-4f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(u[i] << 16);
    x[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
    largest = fmaxf(largest, fmaxf(fabsf(x[2 * i]), fabsf(x[2 * i + 1])));
  }
#pragma unroll
  for (int o = 1; o < 16; o *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
  const uint32_t bits = __float_as_uint(largest * (1.0f / 448.0f));
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffff) != 0);
  scale = __uint_as_float(exponent << 23);
  const float inverse = __uint_as_float((254 - exponent) << 23);
  uint16_t codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(codes[i])
        : "f"(x[2 * i + 1] * inverse), "f"(x[2 * i] * inverse));
  return {codes[0] | static_cast<uint32_t>(codes[1]) << 16, codes[2] | static_cast<uint32_t>(codes[3]) << 16};
}

}  // namespace hadal::cuda
