#include "ops/router/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(Router, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::router_cases); }

}  // namespace
}  // namespace hadal
