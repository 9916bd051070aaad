// The number formats of base/dtype.h for device code: the same bits for every input. The conversions are written in
// integers and fp32, so that one source serves host and device: cuda/codec_test.cc holds it against the CPU codecs
// without a GPU, and check_codecs() (selfcheck.h) repeats that on the device.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define HADAL_HD __host__ __device__ __forceinline__
#else
#define HADAL_HD inline
#endif

namespace hadal::cuda {

HADAL_HD uint32_t float_bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
#endif
}

HADAL_HD float bits_float(uint32_t u) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(u);
#else
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
#endif
}

// ---- bf16
HADAL_HD float from_bf16(uint16_t b) { return bits_float(static_cast<uint32_t>(b) << 16); }
HADAL_HD uint16_t to_bf16(float x) {
  const uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
HADAL_HD float round_bf16(float x) { return from_bf16(to_bf16(x)); }

// ---- e4m3fn
HADAL_HD float from_e4m3(uint8_t c) {
  const uint32_t e = (c >> 3) & 15u, m = c & 7u, sign = (c & 0x80u) << 24;
  if (e == 15 && m == 7) return bits_float(0x7fc00000u | sign);
  const float subnormal = static_cast<float>(m) * 0x1p-9f;
  return bits_float((e == 0 ? float_bits(subnormal) : ((e + 120) << 23) | (m << 20)) | sign);
}

// Saturates at +-448; NaN gives 0x7f.
HADAL_HD uint8_t to_e4m3(float x) {
  const uint32_t u = float_bits(x), magnitude = u & 0x7fffffffu;
  const uint32_t sign = (u >> 24) & 0x80u;
  if (magnitude > 0x7f800000u) return 0x7f;
  const float a = bits_float(magnitude);
  if (a >= 464.0f) return static_cast<uint8_t>(sign | 0x7e);
  if (a < 0x1p-6f)  // subnormal: adding 2^14 rounds at 2^-9
    return static_cast<uint8_t>(sign | (float_bits(a + 0x1p14f) - float_bits(0x1p14f)));
  const uint32_t code = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
  return static_cast<uint8_t>(sign | (code > 0x7e ? 0x7e : code));
}

// ---- e2m1
HADAL_HD float from_e2m1(uint8_t c) {
  const uint32_t code = c & 7u, sign = (c & 8u) << 28;
  // 0 and .5 are the subnormal pair; the others have exponent field (code >> 1) - 1 + 127.
  const uint32_t bits = code < 2 ? (code != 0 ? 0x3f000000u : 0u) : (((code >> 1) + 126u) << 23) | ((code & 1u) << 22);
  return bits_float(bits | sign);
}

HADAL_HD uint8_t to_e2m1(float x) {
  const uint32_t u = float_bits(x);
  const float a = bits_float(u & 0x7fffffffu);
  const uint32_t code = (a > .25f) + (a >= .75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.f);
  return static_cast<uint8_t>(code | (u >> 31 << 3));
}

// ---- ue8m0
HADAL_HD float from_ue8m0(uint8_t b) {
  if (b == 0) return bits_float(0x00400000u);
  if (b == 255) return bits_float(0x7fc00000u);
  return bits_float(static_cast<uint32_t>(b) << 23);
}
HADAL_HD uint8_t pow2ceil_ue8m0(float t) {
  const uint32_t u = float_bits(t);
  return static_cast<uint8_t>((u >> 23) + ((u & 0x7fffffu) != 0));
}
// The same power of two as bf16 bits, exact for every byte but 255.
HADAL_HD uint32_t ue8m0_to_bf16(uint8_t b) { return b == 0 ? 0x0040u : static_cast<uint32_t>(b) << 7; }

// ---- quantisers (spec 3.1): scale byte of a block from its largest magnitude, then codes
HADAL_HD float clamp_to(float x, float limit) {
  const float low = x < -limit ? -limit : x;
  return low > limit ? limit : low;
}
// Q4 is Q1 with 128 channels a block.
HADAL_HD uint8_t q1_scale(float amax) { return pow2ceil_ue8m0((amax > 1e-4f ? amax : 1e-4f) * (1.0f / 448.0f)); }
HADAL_HD uint8_t q1_code(float x, uint8_t scale) { return to_e4m3(clamp_to(x / from_ue8m0(scale), 448.0f)); }
HADAL_HD uint8_t q2_scale(float amax) {
  constexpr float kFloor = 6 * 0x1p-126f;
  return pow2ceil_ue8m0((amax > kFloor ? amax : kFloor) * (1.0f / 6.0f));
}
HADAL_HD uint8_t q2_code(float x, uint8_t scale) { return to_e2m1(clamp_to(x / from_ue8m0(scale), 6.0f)); }
HADAL_HD uint8_t q3_scale(float amax) {
  constexpr float kFloor = 6 * 0x1p-9f;
  return to_e4m3((amax > kFloor ? amax : kFloor) / 6.0f);
}
HADAL_HD uint8_t q3_code(float x, uint8_t scale) { return to_e2m1(clamp_to(x / from_e4m3(scale), 6.0f)); }

}  // namespace hadal::cuda
