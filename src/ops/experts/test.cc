#include "ops/experts/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(Experts, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::experts_cases); }

}  // namespace
}  // namespace hadal
