#include "ops/head/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(Head, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::head_cases); }

}  // namespace
}  // namespace hadal
