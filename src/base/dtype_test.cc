#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace hadal {
namespace {

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// Every format's definition, in double arithmetic.
double e4m3_value(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(E4m3, AllCodes) {
  for (int code = 0; code < 256; ++code) {
    const float v = from_e4m3(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(v)) << code;
      continue;
    }
    EXPECT_EQ(v, e4m3_value(code)) << code;
    EXPECT_EQ(std::signbit(v), code >= 128) << code;
    EXPECT_EQ(to_e4m3(v), code);
    EXPECT_EQ(bits(e4m3_table()[static_cast<size_t>(code)]), bits(v));
  }
}

TEST(E4m3, MidpointsGoToTheEvenCode) {
  for (int code = 0; code < 0x7e; ++code) {
    const auto middle = static_cast<float>((e4m3_value(code) + e4m3_value(code + 1)) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(to_e4m3(middle), even) << middle;
    EXPECT_EQ(to_e4m3(-middle), even | 0x80) << middle;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 1e9f)), code + 1);
  }
}

TEST(E4m3, SaturatesAndKeepsNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {449.0f, 463.9f, 464.0f, 465.0f, 480.0f, 1e30f, infinity}) {
    EXPECT_EQ(to_e4m3(x), 0x7e) << x;
    EXPECT_EQ(to_e4m3(-x), 0xfe) << x;
  }
  EXPECT_EQ(to_e4m3(std::numeric_limits<float>::quiet_NaN()), 0x7f);
  EXPECT_EQ(to_e4m3(0.0f), 0);
  EXPECT_EQ(to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(to_e4m3(0x1p-30f), 0);
}

TEST(E2m1, AllCodes) {
  const double magnitude[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    const float v = from_e2m1(static_cast<uint8_t>(code));
    EXPECT_EQ(std::fabs(v), magnitude[code % 8]);
    EXPECT_EQ(std::signbit(v), code >= 8);
    EXPECT_EQ(to_e2m1(v), code);
  }
}

TEST(E2m1, MidpointsGoToTheEvenCode) {
  const struct {
    float middle;
    int code;  // the even one of its two neighbours
    int below;
  } cases[] = {{.25f, 0, 0}, {.75f, 2, 1}, {1.25f, 2, 2}, {1.75f, 4, 3}, {2.5f, 4, 4}, {3.5f, 6, 5}, {5.f, 6, 6}};
  for (const auto& c : cases) {
    EXPECT_EQ(to_e2m1(c.middle), c.code) << c.middle;
    EXPECT_EQ(to_e2m1(-c.middle), c.code | 8) << c.middle;
    EXPECT_EQ(to_e2m1(std::nextafter(c.middle, 0.0f)), c.below) << c.middle;
    EXPECT_EQ(to_e2m1(std::nextafter(c.middle, 9.0f)), c.below + 1) << c.middle;
  }
  EXPECT_EQ(to_e2m1(100.0f), 7);
  EXPECT_EQ(to_e2m1(-100.0f), 15);
}

TEST(Ue8m0, AllBytes) {
  for (int byte = 0; byte < 255; ++byte)
    EXPECT_EQ(static_cast<double>(from_ue8m0(static_cast<uint8_t>(byte))), std::ldexp(1.0, byte - 127)) << byte;
  EXPECT_EQ(bits(from_ue8m0(0)), 0x00400000u);  // 2^-127, a subnormal, and not zero
  EXPECT_TRUE(std::isnan(from_ue8m0(255)));
}

// A weight is code * scale: exact in fp32 and in bf16 for every scale that leaves the exponent in range.
TEST(Ue8m0, ProductsAreExact) {
  for (int byte = 1; byte <= 252; ++byte) {
    const float scale = from_ue8m0(static_cast<uint8_t>(byte));
    for (int code = 0; code < 16; ++code) {
      const float v = from_e2m1(static_cast<uint8_t>(code)) * scale;
      EXPECT_EQ(static_cast<double>(v), std::ldexp(from_e2m1(static_cast<uint8_t>(code)), byte - 127));
      EXPECT_EQ(bits(round_bf16(v)), bits(v)) << code << " " << byte;
    }
    if (byte < 10 || byte > 244) continue;  // 2^-9 and 448 need room at both ends
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7f) == 0x7f) continue;
      const float v = from_e4m3(static_cast<uint8_t>(code)) * scale;
      EXPECT_EQ(static_cast<double>(v), std::ldexp(e4m3_value(code), byte - 127));
      EXPECT_EQ(bits(round_bf16(v)), bits(v)) << code << " " << byte;
    }
  }
}

TEST(Ue8m0, SmallestPowerOfTwoThatIsNotLess) {
  for (int exponent = -126; exponent < 127; ++exponent) {
    const float t = std::ldexp(1.0f, exponent);
    EXPECT_EQ(pow2ceil_ue8m0(t), exponent + 127);
    EXPECT_EQ(pow2ceil_ue8m0(std::nextafter(t, 1e38f)), exponent + 128);
    EXPECT_EQ(pow2ceil_ue8m0(t * 1.5f), exponent + 128);
    if (exponent == -126) continue;  // below it are subnormals
    EXPECT_EQ(pow2ceil_ue8m0(std::nextafter(t, 0.0f)), exponent + 127);
  }
}

// The nearest of all bf16 numbers around x, even mantissa first: by distance in double.
TEST(Bf16, RoundsToNearestEven) {
  uint32_t state = 12345;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    uint32_t u = state;
    if (i % 4 == 0) u = (u & 0xffff0000u) | 0x8000u;  // midpoints
    if (((u >> 23) & 255u) >= 254u) continue;         // so that both neighbours are finite
    const auto x = std::bit_cast<float>(u);
    const auto below = static_cast<uint16_t>(u >> 16);
    const auto above = static_cast<uint16_t>(below + 1);
    const double d0 = std::fabs(static_cast<double>(x) - from_bf16(below));
    const double d1 = std::fabs(static_cast<double>(x) - from_bf16(above));
    const uint16_t want = d0 < d1 ? below : d1 < d0 ? above : below % 2 == 0 ? below : above;
    ASSERT_EQ(to_bf16(x), want) << x;
    ASSERT_EQ(bits(round_bf16(x)), static_cast<uint32_t>(want) << 16);
  }
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(to_bf16(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7f800001u)))));  // payload in the lower half
}

}  // namespace
}  // namespace hadal
