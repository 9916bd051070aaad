#include "ops/sample/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

TEST(Sample, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::sample_cases); }

// 0.5, 0.25, 0.125, ...: what a nucleus is can be told by heart.
TEST(SampleReference, FiltersKeepWhatTheyShould) {
  testing::HostContext context(Numerics::bf16);
  std::vector<float> logits;
  for (int i = 0; i < 12; ++i) logits.push_back(static_cast<float>(-i * std::log(2.0)));
  const auto most = [&](SampleRow row) {
    int32_t largest = 0;
    for (int position = 0; position < 4000; ++position) {
      row.temperature = 1;
      row.position = position;
      int32_t token = -2;
      reference::sample(context, {1, &row, {logits.data(), DType::f32, 1, 12}, {&token, DType::i32, 1, 1}});
      EXPECT_EQ(token, sample_on_host(logits, row));
      largest = std::max(largest, token);
    }
    return largest;
  };
  EXPECT_EQ(most({.top_k = 3}), 2);
  EXPECT_EQ(most({.top_p = 0.5}), 0);  // 0.5 of what is 1 - 2^-12 in all
  EXPECT_EQ(most({.top_p = 0.51}), 1);
  EXPECT_EQ(most({.min_p = 0.24}), 2);
  EXPECT_EQ(most({.top_k = 2, .top_p = 0.9}), 1);
}

}  // namespace
}  // namespace hadal
