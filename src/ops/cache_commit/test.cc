#include "ops/cache_commit/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(CacheCommit, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::cache_commit_cases); }

}  // namespace
}  // namespace hadal
