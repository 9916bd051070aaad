// The building blocks of the reference against formulas written another way.
#include "ops/reference_math.h"

#include <gtest/gtest.h>

#include <complex>

#include "base/dtype.h"
#include "ops/testing/backend.h"
#include "ops/testing/host_context.h"

namespace hadal::reference {
namespace {

using testing::HostWeight;

TEST(ReferenceMath, Fp8WeightsHaveOneScalePerBlockOf32By32) {
  HostWeight w{WeightFormat::fp8_block32, 40, 96, std::vector<uint8_t>(40 * 96, 0x38), {120, 121, 122, 130, 131, 132}};
  w.data[33 * 96 + 70] = 0xb0;  // -0.5
  const Weight weight{w.format, w.n, w.k, w.data.data(), w.scale.data()};
  EXPECT_EQ(weight_at(weight, 0, 0), 0x1p-7f);
  EXPECT_EQ(weight_at(weight, 31, 95), 0x1p-5f);
  EXPECT_EQ(weight_at(weight, 32, 31), 8.0f);
  EXPECT_EQ(weight_at(weight, 33, 70), -16.0f);
}

TEST(ReferenceMath, Fp4WeightsHoldTheEvenColumnInTheLowNibble) {
  HostWeight w{WeightFormat::mxfp4, 2, 64, std::vector<uint8_t>(64, 0x22), {127, 128, 0, 129}};
  w.data[32 + 5] = 0xd7;   // row 1, columns 10 and 11: 6 and -3
  w.data[32 + 20] = 0x1f;  // columns 40 and 41: -6 and 0.5
  const Weight weight{w.format, w.n, w.k, w.data.data(), w.scale.data()};
  EXPECT_EQ(weight_at(weight, 0, 31), 1.0f);
  EXPECT_EQ(weight_at(weight, 0, 32), 2.0f);
  EXPECT_EQ(weight_at(weight, 1, 10), 6 * 0x1p-127f);
  EXPECT_EQ(weight_at(weight, 1, 11), -3 * 0x1p-127f);
  EXPECT_EQ(weight_at(weight, 1, 40), -24.0f);
  EXPECT_EQ(weight_at(weight, 1, 41), 2.0f);
}

// `official` quantises the inputs of FP8 and FP4 weights, of no other, and wo_a's never.
TEST(ReferenceMath, OfficialRoundsInputsOfQuantisedWeights) {
  std::vector<float> x(32);
  x[0] = 448;
  x[1] = 17;  // a tie at scale 1: 16
  HostWeight fp8{WeightFormat::fp8_block32, 1, 32, std::vector<uint8_t>(32, 0), {127}};
  fp8.data[1] = 0x38;
  const Weight quantised{fp8.format, 1, 32, fp8.data.data(), fp8.scale.data()};
  std::vector<float> one(32);
  one[1] = 1;
  const HostWeight bf16 = testing::bf16_weight(one, 1, 32);
  const Weight plain{bf16.format, 1, 32, bf16.data.data()};
  EXPECT_EQ(linear(Numerics::official, quantised, x.data(), 1, 32)[0], 16.0f);
  EXPECT_EQ(linear(Numerics::bf16, quantised, x.data(), 1, 32)[0], 17.0f);
  EXPECT_EQ(linear(Numerics::fp32, quantised, x.data(), 1, 32)[0], 17.0f);
  EXPECT_EQ(linear(Numerics::official, plain, x.data(), 1, 32)[0], 17.0f);
}

// `fp8` quantises the same inputs in groups of 128, and gives FP8 weights one scale for 32 rows and 128 columns.
TEST(ReferenceMath, Fp8FoldsScalesAndRoundsInputsInGroups) {
  constexpr int kColumns = 160;
  HostWeight fp8{WeightFormat::fp8_block32, 1, kColumns, std::vector<uint8_t>(kColumns), {127, 130, 123, 127, 120}};
  fp8.data[0] = 0x39;    // 1.125: an eighth of its scale's, exact still
  fp8.data[1] = 0x01;    // 2^-9 in units of 1, 2^-12 of 8: below half the smallest: lost
  fp8.data[2] = 0x0d;    // 13 * 2^-9: 1.625 of the smallest, so 2 * 2^-9 * 8
  fp8.data[70] = 0x30;   // 0.5 / 16
  fp8.data[128] = 0x01;  // a group of its own keeps everything
  const Weight w{fp8.format, 1, kColumns, fp8.data.data(), fp8.scale.data()};
  const Row row = weight_row(Numerics::fp8, w, 0);
  EXPECT_EQ(row[0], 1.125f);
  EXPECT_EQ(row[1], 0.0f);
  EXPECT_EQ(row[2], 0x1p-5f);
  EXPECT_EQ(row[70], 0x1p-5f);
  EXPECT_EQ(row[128], 0x1p-16f);
  EXPECT_EQ(weight_row(Numerics::bf16, w, 0), weight_row(w, 0));

  // Another scale shows in subnormals only.
  std::vector<float> x(kColumns);
  x[0] = 448;
  x[40] = 0x1.8p-9f;   // in the group of 448, though not in its 32: a tie
  x[130] = 0x1.8p-9f;  // in the next group
  HostWeight ones{WeightFormat::fp8_block32, 1, kColumns, std::vector<uint8_t>(kColumns), std::vector<uint8_t>(5, 127)};
  ones.data[40] = ones.data[130] = 0x38;
  const Weight picks{ones.format, 1, kColumns, ones.data.data(), ones.scale.data()};
  EXPECT_EQ(linear(Numerics::fp8, picks, x.data(), 1, kColumns)[0], 0x1p-8f + 0x1.8p-9f);
  EXPECT_EQ(linear(Numerics::official, picks, x.data(), 1, kColumns)[0], 0x1.8p-9f + 0x1.8p-9f);
}

TEST(ReferenceMath, LinearRoundsItsOutputOnceAtTheEnd) {
  std::vector<float> x(32, 1.0f), w(32, 0x1p-10f);
  w[0] = 1;  // 1 + 31 * 2^-10 = 1.0302734375, in bf16 1.03125
  const HostWeight host = testing::f32_weight(w, 1, 32);
  const Weight weight{host.format, 1, 32, host.data.data()};
  EXPECT_EQ(linear(Numerics::fp32, weight, x.data(), 1, 32)[0], 1.0302734375f);
  EXPECT_EQ(linear(Numerics::bf16, weight, x.data(), 1, 32)[0], 1.03125f);
  EXPECT_EQ(linear_f32(Numerics::bf16, weight, x.data(), 1, 32)[0], 1.0302734375f);
}

// eps is 1e-20: values of 1e-8 are normalised as any others.
TEST(ReferenceMath, RmsNorm) {
  std::vector<float> x(32);
  std::vector<uint16_t> w(32);
  double mean = 0;
  for (int i = 0; i < 32; ++i) {
    x[i] = 1e-8f * static_cast<float>(i - 11);
    w[i] = to_bf16(0.25f * static_cast<float>(i % 5 + 1));
    mean += double(x[i]) * x[i] / 32;
  }
  std::vector<float> y = x, rounded = x;
  rms_norm(Numerics::fp32, y.data(), w.data(), 32, 1e-20f);
  rms_norm(Numerics::bf16, rounded.data(), w.data(), 32, 1e-20f);
  for (int i = 0; i < 32; ++i) {
    const double want = 0.25 * (i % 5 + 1) * x[i] / std::sqrt(mean + 1e-20);
    EXPECT_NEAR(y[i], want, 1e-7 * std::fabs(want)) << i;
    EXPECT_EQ(rounded[i], round_bf16(static_cast<float>(want))) << i;  // one rounding, not two
  }
  std::vector<float> zero(32);
  rms_norm(Numerics::fp32, zero.data(), w.data(), 32, 1e-20f);
  for (const float v : zero) EXPECT_EQ(v, 0.0f);
}

TEST(ReferenceMath, RotationOfTheLastChannels) {
  const std::vector<float> inv_freq = {1, 0.37f, 0x1p-9f, 1e-5f};
  const Rope rope{inv_freq.data(), 8};
  for (const int32_t position : {0, 1, 7, 4095, 1048575}) {
    std::vector<float> x(20);
    for (int i = 0; i < 20; ++i) x[i] = static_cast<float>(i * i % 13) - 6;
    std::vector<float> y = x;
    rotate(Numerics::fp32, rope, y.data(), 20, position);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(y[i], x[i]);
    for (int i = 0; i < 4; ++i) {
      const float angle = static_cast<float>(position) * inv_freq[i];  // the fp32 angle is part of the model
      const std::complex<double> want =
          std::complex<double>(x[12 + 2 * i], x[13 + 2 * i]) * std::polar(1.0, static_cast<double>(angle));
      EXPECT_NEAR(y[12 + 2 * i], want.real(), 2e-6);
      EXPECT_NEAR(y[13 + 2 * i], want.imag(), 2e-6);
    }
    rotate(Numerics::fp32, rope, y.data(), 20, position, /*inverse=*/true);
    for (int i = 0; i < 20; ++i) EXPECT_NEAR(y[i], x[i], 4e-6);
  }
}

}  // namespace
}  // namespace hadal::reference
