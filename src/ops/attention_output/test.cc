#include "ops/attention_output/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(AttentionOutput, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::attention_output_cases); }

}  // namespace
}  // namespace hadal
