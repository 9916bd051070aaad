#include "base/row_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace hadal {
namespace {

constexpr RowFormat kFormats[] = {RowFormat::fp8_ue8m0_32, RowFormat::fp4_ue8m0_32, RowFormat::fp4_e4m3_16};

std::vector<uint8_t> pack(RowFormat format, const std::vector<float>& x) {
  std::vector<uint8_t> row(row_bytes(format, static_cast<int>(x.size())));
  pack_row(format, x.data(), static_cast<int>(x.size()), row.data());
  return row;
}

std::vector<float> unpack(RowFormat format, const std::vector<uint8_t>& row, int dim) {
  std::vector<float> x(dim);
  unpack_row(format, row.data(), dim, x.data());
  return x;
}

std::vector<int> hex(const std::string& text) {
  std::vector<int> out;
  std::istringstream in(text);
  for (std::string word; in >> word;) out.push_back(static_cast<int>(std::strtol(word.c_str(), nullptr, 16)));
  return out;
}

// The test vector of spec 3.1.
std::vector<float> spec_vector() {
  std::vector<float> x;
  for (int i = 0; i < 32; ++i) x.push_back(round_bf16(static_cast<float>((13 * i % 32 - 15.5) * 0.37)));
  return x;
}

int nibble(const std::vector<uint8_t>& row, int i) { return i % 2 == 0 ? row[i / 2] & 15 : row[i / 2] >> 4; }

TEST(RowFormat, Bytes) {
  EXPECT_EQ(row_bytes(RowFormat::fp8_ue8m0_32, 512), 528u);
  EXPECT_EQ(row_bytes(RowFormat::fp4_ue8m0_32, 128), 68u);
  EXPECT_EQ(row_bytes(RowFormat::fp4_e4m3_16, 512), 288u);
}

TEST(RowFormat, Q1Vector) {
  const std::vector<uint8_t> row = pack(RowFormat::fp8_ue8m0_32, spec_vector());
  const std::vector<int> codes =
      hex("fc e7 78 f5 6d fb e1 78 f3 70 fa d4 79 f2 72 f9 54 7a f0 73 f8 61 7b ed 75 f8 67 7c ea 76 f6 6a");
  for (int i = 0; i < 32; ++i) EXPECT_EQ(row[i], codes[i]) << i;
  EXPECT_EQ(row[32], 121);
}

TEST(RowFormat, Q2Vector) {
  const std::vector<uint8_t> row = pack(RowFormat::fp4_ue8m0_32, spec_vector());
  const std::vector<int> codes = hex("f a 6 d 3 f 9 6 d 4 e 8 6 c 4 e 0 6 c 5 e 1 7 b 5 e 2 7 b 6 e 3");
  for (int i = 0; i < 32; ++i) EXPECT_EQ(nibble(row, i), codes[i]) << i;
  EXPECT_EQ(row[16], 127);
}

TEST(RowFormat, Q3Vector) {
  const std::vector<uint8_t> row = pack(RowFormat::fp4_e4m3_16, spec_vector());
  const std::vector<int> codes = hex("f a 6 d 4 f 9 6 d 4 f 8 6 d 5 e 0 7 c 5 e 1 7 c 5 e 2 7 b 6 e 3");
  for (int i = 0; i < 32; ++i) EXPECT_EQ(nibble(row, i), codes[i]) << i;
  EXPECT_EQ(row[16], 0x37);
  EXPECT_EQ(row[17], 0x37);
}

// A block's largest value at a power-of-two multiple of 448 or 6 fits the scale exactly; one ulp above it does not.
TEST(RowFormat, ScaleBoundaries) {
  for (const int exponent : {-3, 0, 5}) {
    for (const bool fp8 : {true, false}) {
      const RowFormat format = fp8 ? RowFormat::fp8_ue8m0_32 : RowFormat::fp4_ue8m0_32;
      const size_t scale_at = fp8 ? 32 : 16;
      std::vector<float> x(32);
      x[7] = -std::ldexp(fp8 ? 448.0f : 6.0f, exponent);
      EXPECT_EQ(pack(format, x)[scale_at], 127 + exponent);
      x[7] = std::nextafter(x[7], -1e30f);
      EXPECT_EQ(pack(format, x)[scale_at], 128 + exponent);
    }
  }
  // E4M3 scale, a / 6 halfway between 1 and 1.125: to even, which is 1; the value itself is then clamped to 6.
  std::vector<float> x(32);
  x[3] = 6 * 1.0625f;
  x[20] = 6 * 1.1875f;  // halfway between 1.125 and 1.25: up
  const std::vector<uint8_t> row = pack(RowFormat::fp4_e4m3_16, x);
  EXPECT_EQ(from_e4m3(row[16]), 1.0f);
  EXPECT_EQ(from_e4m3(row[17]), 1.25f);
  EXPECT_EQ(unpack(RowFormat::fp4_e4m3_16, row, 32)[3], 6.0f);
}

// Zero rows take the floor of the scale: 1e-4 / 448 -> 2^-22, 2^-126, 2^-9.
TEST(RowFormat, Floors) {
  const std::vector<float> zero(32), minus(32, -0.0f);
  EXPECT_EQ(pack(RowFormat::fp8_ue8m0_32, zero)[32], 105);
  EXPECT_EQ(pack(RowFormat::fp4_ue8m0_32, zero)[16], 1);
  EXPECT_EQ(pack(RowFormat::fp4_e4m3_16, zero)[16], 1);
  for (const RowFormat format : kFormats) {
    for (const float v : unpack(format, pack(format, zero), 32)) EXPECT_EQ(std::bit_cast<uint32_t>(v), 0u);
    for (const float v : unpack(format, pack(format, minus), 32)) EXPECT_EQ(std::bit_cast<uint32_t>(v), 0x80000000u);
  }
  // Just under and over the floor of Q1.
  std::vector<float> x(32);
  x[0] = 0.9e-4f;
  EXPECT_EQ(pack(RowFormat::fp8_ue8m0_32, x)[32], 105);
  x[0] = std::ldexp(448.0f, -22) * 1.01f;
  EXPECT_EQ(pack(RowFormat::fp8_ue8m0_32, x)[32], 106);
}

TEST(RowFormat, TiesGoToEven) {
  // Scale 1 by a largest value of 6 or 448.
  std::vector<float> x = {6,     .25f,  .75f,   1.25f,  1.75f, 2.5f,  3.5f, 5,
                          -.25f, -.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5,   0};
  x.resize(32);
  x[16] = 6;
  const std::vector<float> even = {6, 0, 1, 1, 2, 2, 4, 4, -0.f, -1, -1, -2, -2, -4, -4, 0};
  for (const RowFormat format : {RowFormat::fp4_ue8m0_32, RowFormat::fp4_e4m3_16}) {
    const std::vector<float> y = unpack(format, pack(format, x), 32);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(even[i])) << i;
  }
  const std::vector<float> fp8 = {448, 17, 19, 0x1p-10f, 3 * 0x1p-10f, 432, -17};
  const std::vector<float> fp8_even = {448, 16, 20, 0, 2 * 0x1p-9f, 448, -16};
  std::vector<float> padded = fp8;
  padded.resize(32);
  const std::vector<float> y = unpack(RowFormat::fp8_ue8m0_32, pack(RowFormat::fp8_ue8m0_32, padded), 32);
  for (size_t i = 0; i < fp8.size(); ++i) EXPECT_EQ(y[i], fp8_even[i]) << fp8[i];
}

// Random rows of many magnitudes against the definition: the nearest multiple of the scale, found by search in double.
class Random : public testing::TestWithParam<RowFormat> {};

TEST_P(Random, NearestOnTheGrid) {
  const RowFormat format = GetParam();
  const bool fp8 = format == RowFormat::fp8_ue8m0_32, e4m3_scale = format == RowFormat::fp4_e4m3_16;
  const int block = e4m3_scale ? 16 : 32;
  const double limit = fp8 ? 448 : 6;
  std::vector<double> grid;
  for (int code = 0; code < (fp8 ? 0x7f : 8); ++code)
    grid.push_back(fp8 ? from_e4m3(static_cast<uint8_t>(code)) : from_e2m1(static_cast<uint8_t>(code)));
  std::mt19937 random(7);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> x(64);
    const double magnitude = std::ldexp(1.0, trial % 24 - 12);
    for (float& v : x) v = static_cast<float>(magnitude * unit(random));
    const std::vector<float> y = unpack(format, pack(format, x), 64);
    for (int b = 0; b < 64; b += block) {
      double top = 0;
      for (int i = b; i < b + block; ++i) top = std::max(top, std::fabs(static_cast<double>(x[i])));
      top = std::max(top, fp8 ? 1e-4 : e4m3_scale ? 6 * 0x1p-9 : 0);
      const double scale =
          e4m3_scale ? from_e4m3(to_e4m3(static_cast<float>(top) / 6)) : std::exp2(std::ceil(std::log2(top / limit)));
      for (int i = b; i < b + block; ++i) {
        const double want = std::fabs(static_cast<double>(x[i])) / scale;
        double distance = 1e9;
        for (const double g : grid) distance = std::min(distance, std::fabs(g - want));
        EXPECT_NEAR(std::fabs(std::fabs(y[i]) / scale - want), distance, 1e-6 * (1 + want)) << x[i] << " / " << scale;
        EXPECT_EQ(std::signbit(y[i]), std::signbit(x[i]));
        EXPECT_EQ(round_bf16(y[i]), y[i]);  // every stored value is exact in bf16
      }
    }
  }
}

// Rounded values of Q1 and Q2 stay as they are; their bytes may change to half the scale and codes twice as large.
// (Q3 is not of this kind: the E4M3 scale of a rounded block may be another one where it is subnormal.)
TEST(RowFormat, RoundingTwiceIsRoundingOnce) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> within(-4, 4);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<float> x(32);
    for (float& v : x) v = within(random);
    for (const RowFormat format : {RowFormat::fp8_ue8m0_32, RowFormat::fp4_ue8m0_32}) {
      const std::vector<float> once = unpack(format, pack(format, x), 32);
      EXPECT_EQ(unpack(format, pack(format, once), 32), once);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RowFormat, Random, testing::ValuesIn(kFormats));

TEST(RowFormat, RoundInPlaceIsQ1) {
  std::vector<float> x = spec_vector();
  x.resize(64, 0.003f);
  const std::vector<float> want = unpack(RowFormat::fp8_ue8m0_32, pack(RowFormat::fp8_ue8m0_32, x), 64);
  round_fp8_32(x.data(), 64);
  EXPECT_EQ(x, want);
}

// Q4 by its definition, on a row whose groups have sizes of their own and whose last group is short.
TEST(RowFormat, Q4HasOneScaleFor128Channels) {
  constexpr int kDim = 2 * 128 + 40;
  std::vector<float> x(kDim);
  for (int i = 0; i < kDim; ++i)
    x[i] = static_cast<float>((i * 37 % 101 - 50) * (i < 128 ? 0.01 : i < 256 ? 30 : 1e-9));
  x[131] = -0.0f;
  std::vector<float> rounded = x;
  round_fp8_128(rounded.data(), kDim);
  for (int group = 0; group < 3; ++group) {
    const int begin = 128 * group, end = std::min(begin + 128, kDim);
    float largest = 1e-4f;
    for (int i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
    double scale = 0x1p-40;
    while (scale * 448 < largest) scale *= 2;  // no group's largest lies on the edge, where fp32(1/448) would decide
    for (int i = begin; i < end; ++i) {
      EXPECT_EQ(rounded[i], round_e4m3(static_cast<float>(x[i] / scale)) * scale) << i;
      EXPECT_EQ(rounded[i], round_bf16(rounded[i])) << i;
    }
  }
  EXPECT_TRUE(std::signbit(rounded[131]));
  std::vector<float> again = rounded;
  round_fp8_128(again.data(), kDim);
  EXPECT_EQ(again, rounded);
}

// Q5 by its definition: small values of the row meet the grid's end at 2^-9 of the scale.
TEST(RowFormat, Q5HasOneScaleForTheRow) {
  constexpr int kDim = 2 * 128 + 40;
  std::vector<float> x(kDim);
  for (int i = 0; i < kDim; ++i)
    x[i] = static_cast<float>((i * 37 % 101 - 50) * (i < 128 ? 0.01 : i < 256 ? 30 : 1e-4));
  x[131] = -0.0f;
  double scale = 0x1p-40;
  while (scale * 448 < 1500) scale *= 2;  // 50 * 30
  std::vector<float> rounded = x;
  round_fp8_row(rounded.data(), kDim);
  int zeros = 0, subnormal = 0;
  for (int i = 0; i < kDim; ++i) {
    EXPECT_EQ(rounded[i], round_e4m3(static_cast<float>(x[i] / scale)) * scale) << i;
    EXPECT_EQ(rounded[i], round_bf16(rounded[i])) << i;
    zeros += x[i] != 0 && rounded[i] == 0;
    subnormal += rounded[i] != 0 && std::fabs(rounded[i]) < 0x1p-6 * scale;
  }
  EXPECT_GT(zeros, 0);
  EXPECT_GT(subnormal, 0);
  EXPECT_TRUE(std::signbit(rounded[131]));
  std::vector<float> parts = x;
  ASSERT_EQ(fp8_row_scale(x.data(), kDim), static_cast<float>(scale));
  round_fp8(parts.data(), 100, static_cast<float>(scale));
  round_fp8(parts.data() + 100, kDim - 100, static_cast<float>(scale));
  EXPECT_EQ(parts, rounded);
  round_fp8_row(rounded.data(), kDim);
  EXPECT_EQ(parts, rounded);
}

}  // namespace
}  // namespace hadal
