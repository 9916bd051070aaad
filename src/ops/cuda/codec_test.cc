// The device codecs give the bits of the CPU codecs: all codes, all bf16 values, every midpoint and its neighbours.
#include "ops/cuda/codec.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/row_format.h"

namespace hadal {
namespace {

// Values where a rounding decision can go wrong.
std::vector<float> hard_values() {
  std::vector<float> values;
  for (uint32_t b = 0; b < 0x10000; ++b) values.push_back(from_bf16(static_cast<uint16_t>(b)));
  std::vector<float> grid;
  for (int c = 0; c < 127; ++c) grid.push_back(from_e4m3(static_cast<uint8_t>(c)));
  for (int c = 0; c < 8; ++c) grid.push_back(from_e2m1(static_cast<uint8_t>(c)));
  for (size_t i = 0; i < grid.size(); ++i) {
    const float next = i + 1 < grid.size() ? grid[i + 1] : 480.0f;
    for (const float centre : {grid[i], (grid[i] + next) / 2, 448.0f, 464.0f, 5.0f})
      for (const float v : {centre, std::nextafter(centre, -1e9f), std::nextafter(centre, 1e9f)}) {
        values.push_back(v);
        values.push_back(-v);
      }
  }
  return values;
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST(CudaCodec, Decodes) {
  for (int c = 0; c < 256; ++c) {
    const auto b = static_cast<uint8_t>(c);
    EXPECT_TRUE(same(cuda::from_e4m3(b), from_e4m3(b))) << c;
    EXPECT_TRUE(same(cuda::from_ue8m0(b), from_ue8m0(b))) << c;
    if (c < 16) { EXPECT_TRUE(same(cuda::from_e2m1(b), from_e2m1(b))) << c; }
    if (c != 255) { EXPECT_TRUE(same(from_bf16(static_cast<uint16_t>(cuda::ue8m0_to_bf16(b))), from_ue8m0(b))) << c; }
  }
}

TEST(CudaCodec, Encodes) {
  for (const float v : hard_values()) {
    ASSERT_EQ(cuda::to_bf16(v), to_bf16(v)) << v;
    ASSERT_EQ(cuda::to_e4m3(v), to_e4m3(v)) << v;
    ASSERT_EQ(cuda::to_e2m1(v), to_e2m1(v)) << v;
    if (std::isnormal(v) && v > 0) { ASSERT_EQ(cuda::pow2ceil_ue8m0(v), pow2ceil_ue8m0(v)) << v; }
  }
}

TEST(CudaCodec, PacksRowsLikeTheCpu) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 300; ++trial) {
    float x[32], a = 0, a0 = 0, a1 = 0;
    const float size = std::ldexp(1.0f, trial % 40 - 30);
    for (int i = 0; i < 32; ++i) {
      x[i] = round_bf16(normal(random) * size);
      (i < 16 ? a0 : a1) = std::max(i < 16 ? a0 : a1, std::fabs(x[i]));
    }
    a = std::max(a0, a1);
    uint8_t row[64];
    pack_row(RowFormat::fp8_ue8m0_32, x, 32, row);
    ASSERT_EQ(row[32], cuda::q1_scale(a));
    for (int i = 0; i < 32; ++i) ASSERT_EQ(row[i], cuda::q1_code(x[i], row[32]));
    pack_row(RowFormat::fp4_ue8m0_32, x, 32, row);
    ASSERT_EQ(row[16], cuda::q2_scale(a));
    for (int i = 0; i < 32; ++i) ASSERT_EQ((row[i / 2] >> (i % 2 * 4)) & 15, cuda::q2_code(x[i], row[16]));
    pack_row(RowFormat::fp4_e4m3_16, x, 32, row);
    ASSERT_EQ(row[16], cuda::q3_scale(a0));
    ASSERT_EQ(row[17], cuda::q3_scale(a1));
    for (int i = 0; i < 32; ++i) ASSERT_EQ((row[i / 2] >> (i % 2 * 4)) & 15, cuda::q3_code(x[i], row[16 + i / 16]));
  }
}

}  // namespace
}  // namespace hadal
