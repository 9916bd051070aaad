#include "ops/sparse_attention/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(SparseAttention, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::sparse_attention_cases); }

}  // namespace
}  // namespace hadal
