#include "ops/compressor/cases.h"

#include "ops/testing/gtest_cases.h"

namespace hadal {
namespace {

TEST(Compressor, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::compressor_cases); }

}  // namespace
}  // namespace hadal
