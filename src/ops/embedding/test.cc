#include "ops/embedding/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(Embedding, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::embedding_cases); }

TEST(EmbeddingReference, CopiesAndFirstPre) {
  HostContext context(Numerics::bf16);
  Backend backend(reference_operators(), context);
  std::vector<float> table(3 * 32);
  for (int i = 0; i < 3 * 32; ++i) table[i] = static_cast<float>(i);
  const std::vector<int32_t> tokens = {2, 0};
  EmbeddingArgs args;
  args.tokens = tokens.data();
  args.embed = backend.weight(testing::bf16_weight(table, 3, 32));
  args.h = backend.output_activations(2, 4 * 32);
  args.pre = backend.output(2, 4, DType::f32);
  reference::embedding(context, args);
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(args.h.f32(0)[j * 32 + i], static_cast<float>(64 + i));
      EXPECT_EQ(args.h.f32(1)[j * 32 + i], static_cast<float>(i));
    }
    EXPECT_EQ(args.pre.f32(1)[j], j == 0 ? 1.0f : 0.0f);
  }
}

}  // namespace
}  // namespace hadal
