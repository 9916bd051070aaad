// Q4 for device code: 16 lanes hold a group of 128 channels, eight each.
#pragma once

#include "ops/cuda/codec.cuh"
#include "ops/cuda/fp8_rows.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {

// Two codes, the first in the low byte. Of finite values what to_e4m3 gives, saturated at 448.
__device__ __forceinline__ uint32_t e4m3_pair(float first, float second) {
#if __CUDA_ARCH__ >= 890
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
#else
  return to_e4m3(first) | static_cast<uint32_t>(to_e4m3(second)) << 8;
#endif
}

// A power of two's reciprocal: multiplying by it is the division by the scale of Q4, which is at least 2^-22.
__device__ __forceinline__ float reciprocal_of_power(float scale) {
  return __uint_as_float((254u << 23) - __float_as_uint(scale));
}

// Where 16-byte chunk `chunk` of a group of a row lies.
__device__ __forceinline__ uint8_t* fp8_chunk(const Fp8Rows& out, int group, int row, int chunk) {
  return out.codes + (static_cast<int64_t>(group) * out.padded + row) * 128 + ((chunk ^ (row & 7)) << 4);
}

// Q4 of a group: lane `lane16` (0..15) gives channels 8 * lane16 .. + 7 and gets their codes.
__device__ __forceinline__ uint2 q4_codes(const float (&v)[8], float& scale) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
  const unsigned half = 0xffffu << (threadIdx.x % 32 / 16 * 16);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(half, largest, offset));
  scale = from_ue8m0(q1_scale(largest));
  const float inverse = reciprocal_of_power(scale);
  return {e4m3_pair(v[0] * inverse, v[1] * inverse) | e4m3_pair(v[2] * inverse, v[3] * inverse) << 16,
          e4m3_pair(v[4] * inverse, v[5] * inverse) | e4m3_pair(v[6] * inverse, v[7] * inverse) << 16};
}

__device__ __forceinline__ void store_q4(const Fp8Rows& out, int group, int row, int lane16, const float (&v)[8]) {
  float scale;
  const uint2 codes = q4_codes(v, scale);
  *reinterpret_cast<uint2*>(fp8_chunk(out, group, row, lane16 / 2) + lane16 % 2 * 8) = codes;
  if (lane16 == 0) out.scales[static_cast<int64_t>(group) * out.padded + row] = scale;
}

__device__ __forceinline__ void unpack_bf16x8(uint4 bits, float (&v)[8]) {
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = __uint_as_float(words[i] << 16);
    v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

}  // namespace hadal::cuda
