// Number formats of the checkpoint and the caches: bf16, e4m3 (FP8), e2m1 (FP4), ue8m0 (power-of-two scales).
// Rounding is to nearest, ties to even, everywhere. OCP Microscaling Formats (MX) v1.0; spec sections 2.3 and 3.1.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace hadal {

// ---- bf16: the upper half of an fp32 -------------------------------------------------------------------------
inline float from_bf16(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

inline uint16_t to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);  // NaN stays NaN
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float round_bf16(float x) { return from_bf16(to_bf16(x)); }

// ---- e4m3fn: 1 sign, 4 exponent (bias 7), 3 mantissa bits; max 448, no infinity, 0x7f/0xff are NaN -------------
inline float from_e4m3(uint8_t c) {
  const int e = (c >> 3) & 15, m = c & 7;
  float v;
  if (e == 15 && m == 7)
    v = std::numeric_limits<float>::quiet_NaN();
  else if (e == 0)
    v = static_cast<float>(m) * 0x1p-9f;
  else
    v = std::bit_cast<float>(static_cast<uint32_t>(((e + 120) << 23) | (m << 20)));
  return (c & 0x80) != 0 ? -v : v;
}

// All 256 values, for decoding by table.
const std::array<float, 256>& e4m3_table();

// Saturates at +-448; NaN gives 0x7f.
inline uint8_t to_e4m3(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  const float a = std::fabs(x);
  if (!(a == a)) return 0x7f;
  if (a >= 464.0f) return static_cast<uint8_t>(sign | 0x7e);  // 464 is halfway between 448 and the next step
  if (a < 0x1p-6f) {  // subnormal: multiples of 2^-9; adding 2^14 lets the FPU round at that bit
    const float shifted = a + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1p14f)));
  }
  uint32_t m = std::bit_cast<uint32_t>(a);
  m += 0x7ffffu + ((m >> 20) & 1u);
  const uint32_t code = (m >> 20) - (120u << 3);
  return static_cast<uint8_t>(sign | (code > 0x7e ? 0x7e : code));
}

inline float round_e4m3(float x) { return from_e4m3(to_e4m3(x)); }

// ---- e2m1: magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6; code bit 3 is the sign ----------------------------------------
inline constexpr std::array<float, 16> kE2m1 = {0.f,  .5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                                -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
inline float from_e2m1(uint8_t c) { return kE2m1[c & 15]; }

// Midpoints go to the even code: .25->0, .75->1, 1.25->1, 1.75->2, 2.5->2, 3.5->4, 5->4. Saturates at 6; the sign
// of zero is kept.
inline uint8_t to_e2m1(float x) {
  const float a = std::fabs(x);
  const int code = (a > .25f) + (a >= .75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.f);
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

// ---- ue8m0: 2^(byte-127); byte 0 is 2^-127 (a subnormal fp32), byte 255 is NaN -----------------------------------
inline float from_ue8m0(uint8_t b) {
  if (b == 0) return std::bit_cast<float>(0x00400000u);
  if (b == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 23);
}

// The byte of the smallest power of two >= t, for normal t > 0 ("pow2ceil").
inline uint8_t pow2ceil_ue8m0(float t) {
  const uint32_t u = std::bit_cast<uint32_t>(t);
  return static_cast<uint8_t>((u >> 23) + ((u & 0x7fffffu) != 0));
}

}  // namespace hadal
