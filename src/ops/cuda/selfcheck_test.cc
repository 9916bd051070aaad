// Needs a GPU; skipped without one.
#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/selfcheck.h"

#include <gtest/gtest.h>

namespace hadal::cuda {
namespace {

void expect_none(const std::vector<std::string>& failures) {
  for (const std::string& failure : failures) ADD_FAILURE() << failure;
}

TEST(CudaSelfcheck, CodecsGiveTheBitsOfTheCpu) {
  if (!unavailable_reason().empty()) GTEST_SKIP() << unavailable_reason();
  CudaContext context(Numerics::bf16);
  expect_none(check_codecs(context));
}

TEST(CudaSelfcheck, RowsDoNotDependOnTheirNumber) {
  if (!unavailable_reason().empty()) GTEST_SKIP() << unavailable_reason();
  CudaContext context(Numerics::bf16);
  expect_none(check_row_invariance(context));
}

TEST(CudaSelfcheck, Fp8Products) {
  if (!unavailable_reason().empty()) GTEST_SKIP() << unavailable_reason();
  CudaContext context(Numerics::fp8);
  expect_none(check_fp8_linear(context));
}

TEST(CudaContext, SaysWhyItCannotStart) {
  if (unavailable_reason().empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(CudaContext(Numerics::bf16), std::runtime_error);
  EXPECT_EQ(device_count(), 0);
}

}  // namespace
}  // namespace hadal::cuda
#endif
