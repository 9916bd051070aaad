#include "ops/engram/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(EngramGather, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::engram_gather_cases); }

TEST(EngramApply, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::engram_apply_cases); }

}  // namespace
}  // namespace hadal
