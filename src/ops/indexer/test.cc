#include "ops/indexer/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(Indexer, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::indexer_cases); }

}  // namespace
}  // namespace hadal
