#include "ops/draft/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(DraftContext, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::draft_context_cases); }

TEST(DraftLogits, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::draft_logits_cases); }

}  // namespace
}  // namespace hadal
