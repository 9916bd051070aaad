#include "ops/attention_input/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(AttentionInput, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::attention_input_cases); }

}  // namespace
}  // namespace hadal
