#include "ops/embedding/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(Embedding, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::embedding_cases); }

}  // namespace
}  // namespace hadal
