#include "ops/attention_input/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(AttentionInput, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::attention_input_cases); }

// Unit matrices: latent and qr are norms of x, and q is qr with the last 16 channels of every head turned by 0.25 p.
TEST(AttentionInputReference, UnitWeights) {
  constexpr int kD = 32;
  HostContext context(Numerics::fp32);
  Backend backend(reference_operators(), context);
  testing::Random random(5);
  const testing::HostStep host = testing::make_step(random, {{3, 3, 2}});
  const testing::DeviceStep step(backend, host);
  const std::vector<float> x = random.normals(3 * kD, 1e-6);  // far below the square root of 1e-6
  std::vector<float> unit(2 * kD * kD);
  for (int n = 0; n < 2 * kD; ++n) unit[n * kD + n % kD] = 1;
  std::vector<float> norm(kD, 1);
  norm[7] = 0.5f;
  const std::vector<uint16_t> norm_bits = testing::to_bf16(norm), ones = testing::to_bf16(std::vector<float>(kD, 1));
  const std::vector<float> inv_freq(8, 0.25f);
  const std::vector<int32_t> source = {2, 0};
  const auto bytes = static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, kD));

  AttentionInputArgs args;
  args.x = backend.activations(x, 3, kD);
  args.in = &step.all;
  args.out = &step.kept;
  args.source = source.data();
  args.heads = 2;
  args.head_dim = kD;
  args.rope = {inv_freq.data(), 16};
  args.wkv = backend.weight(testing::f32_weight({unit.begin(), unit.begin() + kD * kD}, kD, kD));
  args.kv_norm = norm_bits.data();
  args.wq_a = args.wkv;
  args.q_norm = ones.data();
  args.wq_b = backend.weight(testing::f32_weight(unit, 2 * kD, kD));
  args.latent = backend.output(3, bytes, DType::u8);
  args.qr = backend.output_activations(2, kD);
  args.q = backend.output_activations(2, 2 * kD);
  reference::attention_input(context, args);

  const auto normalised = [&](int row) {
    double mean = 0;
    for (int i = 0; i < kD; ++i) mean += double(x[row * kD + i]) * x[row * kD + i] / kD;
    std::vector<double> y(kD);
    for (int i = 0; i < kD; ++i) y[i] = x[row * kD + i] / std::sqrt(mean);
    return y;
  };
  const auto turned = [&](std::vector<double> v, int position) {
    for (int i = 16; i < kD; i += 2) {
      const double re = v[i], im = v[i + 1], angle = 0.25 * position;
      v[i] = re * std::cos(angle) - im * std::sin(angle);
      v[i + 1] = re * std::sin(angle) + im * std::cos(angle);
    }
    return v;
  };
  testing::Report report;
  for (int r = 0; r < 3; ++r) {
    std::vector<double> kv = normalised(r);
    kv[7] *= 0.5;
    const std::vector<double> want = turned(kv, 3 + r);
    const std::vector<float> unrounded(want.begin(), want.end());
    compare_packed_row(report, "latent", RowFormat::fp8_ue8m0_32, kD, unrounded.data(), args.latent.u8(r),
                       {1e-6, 1e-6, 0});
  }
  EXPECT_TRUE(report.passed()) << report.message();
  for (int r = 0; r < 2; ++r) {
    const std::vector<double> qr = normalised(source[r]), q = turned(qr, 4 + r);
    for (int i = 0; i < kD; ++i) {
      EXPECT_NEAR(args.qr.f32(r)[i], qr[i], 1e-6);
      EXPECT_NEAR(args.q.f32(r)[i], q[i], 1e-6);
      EXPECT_NEAR(args.q.f32(r)[kD + i], q[i], 1e-6);
    }
  }
}

}  // namespace
}  // namespace hadal
