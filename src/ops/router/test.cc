#include "ops/router/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(Router, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::router_cases); }

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights, scores;
};

// Routes one row with these logits.
Routed route(const std::vector<float>& logits, const std::vector<float>& bias, int topk,
             const std::vector<float>& bias_vl = {}, bool image = false, float temperature = 1) {
  const int experts = static_cast<int>(logits.size());
  HostContext context(Numerics::bf16);
  Backend backend(reference_operators(), context);
  std::vector<float> gate(experts * 32), x(32);
  for (int e = 0; e < experts; ++e) gate[e * 32] = logits[e];
  x[0] = 1;
  const std::vector<uint8_t> marks = {static_cast<uint8_t>(image)};
  RouterArgs args;
  args.rows = 1;
  args.topk = topk;
  args.gate_temp = temperature;
  args.x = backend.activations(x, 1, 32);
  args.gate = backend.weight(testing::bf16_weight(gate, experts, 32));
  args.bias = bias.data();
  if (!bias_vl.empty()) args.bias_vl = bias_vl.data();
  args.image = marks.data();
  args.ids = backend.output(1, topk, DType::i32);
  args.weights = backend.output(1, topk, DType::f32);
  args.scores = backend.output(1, experts, DType::f32);
  reference::router(context, args);
  return {backend.download(args.ids).i32, backend.download(args.weights).f32, backend.download(args.scores).f32};
}

// The test vector of spec 3.7, to the digits given there. Order by score 7, 0, 5; ids come out ascending.
TEST(RouterReference, Vector) {
  const Routed r = route({-2, -1, -.5f, 0, .5f, 1, 2, 3}, {.9f, 0, 0, 0, 0, 0, -.9f, 0}, 3);
  const double scores[] = {.3562696, .5596978, .6885325, .8325546, .9869534, 1.1459763, 1.458399, 1.7460204};
  for (int e = 0; e < 8; ++e) EXPECT_NEAR(r.scores[e], scores[e], 3e-7) << e;
  EXPECT_EQ(r.ids, (std::vector<int32_t>{0, 5, 7}));
  EXPECT_NEAR(r.weights[0], .1645199, 1e-7);
  EXPECT_NEAR(r.weights[1], .5291944, 1e-7);
  EXPECT_NEAR(r.weights[2], .8062857, 1e-7);
}

// softplus is x itself above 20, ln(1 + e^x) below.
TEST(RouterReference, SoftplusFarOut) {
  const Routed r = route({25, 20, -30, 4}, {0, 0, 0, 0}, 4);
  EXPECT_EQ(r.scores[0], 5.0f);
  EXPECT_FLOAT_EQ(r.scores[1], static_cast<float>(std::sqrt(20 + 2.0611536e-9)));
  EXPECT_FLOAT_EQ(r.scores[2], static_cast<float>(std::exp(-15.0)));
}

TEST(RouterReference, ImageRowsUseTheirOwnBias) {
  const std::vector<float> logits = {0, 0, 0, 1}, text = {9, 0, 0, 0}, image = {0, 9, 0, 0};
  EXPECT_EQ(route(logits, text, 2, image, false).ids, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(route(logits, text, 2, image, true).ids, (std::vector<int32_t>{1, 3}));
}

TEST(RouterReference, LowerIdFirstAmongEquals) {
  EXPECT_EQ(route({1, 2, 1, 2, 1, 2}, {0, 0, 0, 0, 0, 0}, 4).ids, (std::vector<int32_t>{0, 1, 3, 5}));
  // Scores differ, score + bias does not: both sums are equal in fp32.
  EXPECT_EQ(route({0, 0, 0}, {.5f, .5f, .5f}, 1).ids, (std::vector<int32_t>{0}));
}

TEST(RouterReference, TemperatureDividesLogits) {
  const Routed r = route({1, 2}, {0, 0}, 2, {}, false, 0.5f);
  EXPECT_NEAR(r.scores[0], std::sqrt(std::log1p(std::exp(2.0))), 1e-7);
  EXPECT_NEAR(r.scores[1], std::sqrt(std::log1p(std::exp(4.0))), 2e-7);
}

}  // namespace
}  // namespace hadal
