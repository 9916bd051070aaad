#include "ops/compressor/cases.h"
#include "ops/compressor/reference.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(Compressor, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::compressor_cases); }

constexpr int kD = 32;

std::vector<float> unit_matrix() {
  std::vector<float> w(kD * kD);
  for (int i = 0; i < kD; ++i) w[i * kD + i] = 1;
  return w;
}

// x is [a, b] of a token: wkv and wgate pick the halves. Positions 3 (with a pending half), 4 and 5: groups 1 and 2.
TEST(CompressorReference, RatioTwo) {
  HostContext context(Numerics::fp32);
  Backend backend(reference_operators(), context);
  testing::Random random(3);
  const testing::HostStep host = testing::make_step(random, {{3, 3}}, 4);
  const testing::DeviceStep step(backend, host);
  const std::vector<float> x = random.normals(3 * 2 * kD), pending = random.normals(host.slots * 2 * kD);
  std::vector<float> wkv(kD * 2 * kD), wgate(kD * 2 * kD);
  for (int i = 0; i < kD; ++i) {
    wkv[i * 2 * kD + i] = 1;
    wgate[i * 2 * kD + kD + i] = 1;
  }
  std::vector<float> norm(kD, 1);
  norm[3] = 0.5f;
  const std::vector<uint16_t> norm_bits = testing::to_bf16(norm), ones = testing::to_bf16(std::vector<float>(kD, 1));
  const std::vector<float> inv_freq(8, 0.25f);
  const auto entry_bytes = static_cast<int>(row_bytes(RowFormat::fp4_e4m3_16, kD));
  const auto key_bytes = static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, kD));
  std::vector<uint8_t> entries(host.pages * 2 * entry_bytes), keys(host.pages * 2 * key_bytes);

  CompressorArgs args;
  args.x = backend.activations(x, 3, 2 * kD);
  args.rows = &step.all;
  args.segments = &step.segments;
  args.ratio = 2;
  args.head_dim = args.index_dim = kD;
  args.rope = {inv_freq.data(), 16};
  args.wkv = backend.weight(testing::f32_weight(wkv, kD, 2 * kD));
  args.wgate = backend.weight(testing::f32_weight(wgate, kD, 2 * kD));
  args.norm = norm_bits.data();
  args.wk = backend.weight(testing::f32_weight(unit_matrix(), kD, kD));
  args.k_norm = ones.data();
  args.pending = pending.data();
  args.ab = backend.output(3, 2 * kD, DType::f32);
  args.entries = {entries.data(), entry_bytes, 2};
  args.keys = {keys.data(), key_bytes, 2};
  args.latent = backend.output(3, kD, DType::f32);
  reference::compressor(context, args);

  for (int i = 0; i < 3 * 2 * kD; ++i) EXPECT_EQ(args.ab.f32()[i], x[i]);
  const auto check = [&](int row, int group, const float* first, const float* second) {
    std::vector<double> pooled(kD);
    double mean = 0;
    for (int i = 0; i < kD; ++i) {
      // softmax of two is a sigmoid of the difference
      const double w = 1 / (1 + std::exp(double(second[kD + i]) - first[kD + i]));
      pooled[i] = w * first[i] + (1 - w) * second[i];
      mean += pooled[i] * pooled[i] / kD;
    }
    std::vector<float> c(kD);
    for (int i = 0; i < kD; ++i) {
      c[i] = static_cast<float>(norm[i] * pooled[i] / std::sqrt(mean));
      EXPECT_NEAR(args.latent.f32(row)[i], c[i], 1e-6) << row << " " << i;
    }
    // Entry and key: the last 16 channels turned by 0.25 * (2 * group), then rounded; the key from its own norm of c.
    const double angle = 0.5 * group;
    const auto turned = [&](std::vector<float> v) {
      for (int i = 16; i < kD; i += 2) {
        const double re = v[i], im = v[i + 1];
        v[i] = static_cast<float>(re * std::cos(angle) - im * std::sin(angle));
        v[i + 1] = static_cast<float>(re * std::sin(angle) + im * std::cos(angle));
      }
      return v;
    };
    std::vector<float> key = c;
    double square = 0;
    for (const float v : c) square += double(v) * v / kD;
    for (float& v : key) v = static_cast<float>(v / std::sqrt(square));
    testing::Report report;
    const testing::Tolerance tolerance{2e-7, 2e-6, 0};
    const int64_t at = host.physical(0, 2, group);
    compare_packed_row(report, "entry", RowFormat::fp4_e4m3_16, kD, turned(c).data(), &entries[at * entry_bytes],
                       tolerance);
    compare_packed_row(report, "key", RowFormat::fp4_ue8m0_32, kD, turned(key).data(), &keys[at * key_bytes],
                       tolerance);
    EXPECT_TRUE(report.passed()) << report.message();
  };
  check(0, 1, pending.data() + host.slot[0] * 2 * kD, x.data());
  check(2, 2, x.data() + 2 * kD, x.data() + 4 * kD);
}

}  // namespace
}  // namespace hadal
