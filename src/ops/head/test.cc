#include "ops/head/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(Head, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::head_cases); }

// Logits are fp32 in every mode: 1 + 2^-12 is lost in bf16.
TEST(HeadReference, LogitsAreNotRounded) {
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16, Numerics::official}) {
    HostContext context(numerics);
    Backend backend(reference_operators(), context);
    std::vector<float> head(2 * 32), x(32);
    x[0] = 1;
    x[31] = 0x1p-6f;
    head[32] = 1;
    head[63] = 0x1p-6f;
    HeadArgs args;
    args.rows = 1;
    args.x = backend.activations(x, 1, 32);
    args.head = backend.weight(testing::bf16_weight(head, 2, 32));
    args.logits = backend.output(1, 2, DType::f32);
    reference::head(context, args);
    EXPECT_EQ(args.logits.f32()[0], 0.0f);
    EXPECT_EQ(args.logits.f32()[1], 1 + 0x1p-12f);
  }
}

}  // namespace
}  // namespace hadal
