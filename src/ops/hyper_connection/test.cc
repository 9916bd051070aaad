#include "ops/hyper_connection/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(HyperConnection, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::hyper_connection_cases); }

TEST(Tap, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::tap_cases); }

}  // namespace
}  // namespace hadal
