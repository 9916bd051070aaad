#include "ops/draft/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(DraftContext, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::draft_context_cases); }
TEST(DraftLogits, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::draft_logits_cases); }

// Nothing is rounded to bf16 on the way: neither the correction nor the confidence (spec 5.2).
TEST(DraftLogitsReference, CorrectionAndConfidence) {
  HostContext context(Numerics::bf16);
  Backend backend(reference_operators(), context);
  std::vector<float> embed(3 * 32), head(3 * 32), confidence(64), hidden(32);
  embed[1 * 32 + 4] = 1.0078125f;  // 1 + 2^-7
  head[2 * 32 + 4] = 1.0078125f;   // product 1 + 2^-6 + 2^-14: not in bf16
  hidden[3] = 2;
  confidence[3] = 0.5f;
  confidence[32 + 4] = -2;
  const std::vector<int32_t> tokens = {1};
  DraftLogitsArgs args;
  args.rows = 1;
  args.tokens = tokens.data();
  args.base = backend.f32({0.5f, -1, 3}, 1, 3);
  args.hidden = backend.activations(hidden, 1, 32);
  args.markov_embed = backend.weight(testing::bf16_weight(embed, 3, 32));
  args.markov_head = backend.weight(testing::bf16_weight(head, 3, 32));
  args.confidence = backend.weight(testing::bf16_weight(confidence, 1, 64));
  args.logits = backend.output(1, 3, DType::f32);
  args.probability = backend.output(1, 1, DType::f32);
  reference::draft_logits(context, args);
  EXPECT_EQ(args.logits.f32()[0], 0.5f);
  EXPECT_EQ(args.logits.f32()[1], -1.0f);
  EXPECT_EQ(args.logits.f32()[2], 4 + 0x1p-6f + 0x1p-14f);
  EXPECT_NEAR(*args.probability.f32(), 1 / (1 + std::exp(-(1 - 2.015625))), 1e-7);
}

}  // namespace
}  // namespace hadal
