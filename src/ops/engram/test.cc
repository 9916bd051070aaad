#include "ops/engram/cases.h"
#include "ops/engram/reference.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(EngramGather, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::engram_gather_cases); }
TEST(EngramApply, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::engram_apply_cases); }

// The gate checks of spec 3.9; 0 and -1e-9 stand on the floor of 1e-6.
TEST(EngramReference, Gate) {
  EXPECT_NEAR(reference::engram_gate(-4), .1192029, 5e-8);
  EXPECT_NEAR(reference::engram_gate(0), .5002500, 5e-8);
  EXPECT_NEAR(reference::engram_gate(-1e-9), .4997500, 5e-8);
  EXPECT_NEAR(reference::engram_gate(.25), .6224593, 5e-8);
  EXPECT_NEAR(reference::engram_gate(9), .9525741, 5e-8);
}

// One copy, value and key made by hand: wkv picks channels of e.
TEST(EngramReference, Apply) {
  constexpr int kD = 32;
  HostContext context(Numerics::fp32);
  Backend backend(reference_operators(), context);
  std::vector<float> e(64), h(2 * kD), wkv(2 * kD * 64), q(kD), k(kD);
  for (int i = 0; i < 64; ++i) e[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  for (int i = 0; i < kD; ++i) {
    wkv[i * 64 + i] = 1;                                   // key = e[0..32)
    wkv[(kD + i) * 64 + 32 + i] = 1;                       // value = e[32..64)
    h[i] = h[kD + i] = static_cast<float>(i % 4) * 1e-4f;  // far below 1: the norm's eps is 1e-20
    q[i] = i % 2 == 0 ? 2 : 0.5f;
    k[i] = i % 3 == 0 ? -1 : 1;
  }
  const std::vector<uint16_t> q_bits = testing::to_bf16(q), k_bits = testing::to_bf16(k);
  const std::vector<uint8_t> dead = {0, 1};
  EngramApplyArgs args;
  args.rows = 2;
  args.copies = 1;
  args.d = kD;
  std::vector<float> both = e;
  both.insert(both.end(), e.begin(), e.end());
  args.e = backend.activations(both, 2, 64);
  args.wkv = backend.weight(testing::f32_weight(wkv, 2 * kD, 64));
  args.q_weight = q_bits.data();
  args.k_weight = k_bits.data();
  args.dead = dead.data();
  args.h = backend.activations(h, 2, kD);
  args.gate = backend.output(2, 1, DType::f32);
  reference::engram_apply(context, args);

  double hh = 0, kk = 0, dot = 0;
  for (int i = 0; i < kD; ++i) {
    hh += double(h[i]) * h[i] / kD;
    kk += double(e[i]) * e[i] / kD;
    dot += double(h[i]) * q[i] * k[i] * e[i];
  }
  dot /= std::sqrt(hh) * std::sqrt(kk) * std::sqrt(double(kD));
  const double root = dot > 0 ? std::sqrt(dot) : -std::sqrt(-dot);
  const double gate = 1 / (1 + std::exp(-root));
  EXPECT_GT(std::fabs(dot), 0.01);
  EXPECT_NEAR(args.gate.f32()[0], gate, 1e-7);
  for (int i = 0; i < kD; ++i) {
    EXPECT_NEAR(args.h.f32()[i], h[i] + gate * e[32 + i], 1e-7);
    EXPECT_EQ(args.h.f32(1)[i], h[i]);  // an image position: gate 0
  }
  EXPECT_EQ(args.gate.f32()[1], 0.0f);
}

TEST(EngramReference, GatherReadsScalesPerThirtyTwo) {
  HostContext context(Numerics::bf16);
  Backend backend(reference_operators(), context);
  std::vector<uint8_t> codes(3 * 64, 0x38), scales = {127, 128, 0, 126, 130, 120};  // codes: 1.0
  codes[2 * 64 + 40] = 0xc4;                                                        // -3
  const std::vector<uint32_t> index = {2, 1};
  EngramGatherArgs args;
  args.rows = 1;
  args.columns = 2;
  args.index = index.data();
  args.table = {codes.data(), scales.data(), 3, 64};
  args.out = backend.output_activations(1, 128);
  reference::engram_gather(context, args);
  EXPECT_EQ(args.out.f32()[0], 8.0f);
  EXPECT_EQ(args.out.f32()[40], -3 * 0x1p-7f);
  EXPECT_EQ(args.out.f32()[64], 0x1p-127f);  // scale byte 0
  EXPECT_EQ(args.out.f32()[127], 0.5f);
}

}  // namespace
}  // namespace hadal
