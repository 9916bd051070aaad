#include "ops/attention_output/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(AttentionOutput, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::attention_output_cases); }

// Rows g * o_lora .. of wo_a see columns of group g only; `official` quantises the input of wo_b and not that of wo_a,
// `fp8` both, and all of u, 64 channels, with one scale.
TEST(AttentionOutputReference, GroupsAndInputRounding) {
  testing::HostWeight wo_a{WeightFormat::fp8_block32, 64, 32, std::vector<uint8_t>(64 * 32), {127, 128}};
  for (int n = 0; n < 64; ++n) wo_a.data[n * 32 + n % 32] = 0x38;  // unit matrices, the second group's times 2
  testing::HostWeight wo_b{WeightFormat::fp8_block32, 32, 64, std::vector<uint8_t>(32 * 64), {127, 127}};
  for (int n = 0; n < 32; ++n) wo_b.data[n * 64 + n] = wo_b.data[n * 64 + 32 + n] = 0x38;

  for (const Numerics numerics : {Numerics::bf16, Numerics::official, Numerics::fp8}) {
    HostContext context(numerics);
    Backend backend(reference_operators(), context);
    std::vector<float> o(64);
    o[0] = 448;  // makes Q1's scale 1 in the first block of u
    o[1] = 17;
    o[32 + 1] = 100;
    o[32 + 2] = 0x1.8p-10f;
    AttentionOutputArgs args;
    args.rows = 1;
    args.groups = 2;
    args.o = backend.activations(o, 1, 64);
    args.wo_a = backend.weight(wo_a);
    args.wo_b = backend.weight(wo_b);
    args.y = backend.output_activations(1, 32);
    reference::attention_output(context, args);
    EXPECT_EQ(args.y.f32()[0], 448.0f);
    // 17 rounds to 16, and 200 to 192 (scale 1/2: 400 is halfway between 384 and 416, and 384 has the even mantissa), or
    // 100 to 96 before it is doubled.
    EXPECT_EQ(args.y.f32()[1], numerics == Numerics::bf16 ? 17.0f + 200.0f : 16.0f + 192.0f);
    // A subnormal: exact with a scale of its own block, a tie with that of all channels.
    EXPECT_EQ(args.y.f32()[2], numerics == Numerics::fp8 ? 0x1p-8f : 0x1.8p-9f);
    EXPECT_EQ(args.y.f32()[3], 0.0f);
  }
}

}  // namespace
}  // namespace hadal
