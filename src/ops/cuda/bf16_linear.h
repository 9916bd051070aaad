// y = W x for bf16 weights on Hopper's matrix unit; two weights of one shape as one product.
//
// k is cut into four chains, each one sequence of tensor core products of 16 values in ascending k, and their sums are added in
// ascending order: the same bits for any number of rows. The matrix unit cuts off what does not fit a sum, so that a chain's
// error grows with its length: two chains of 2,560 came to 0.95 of what fp32 sums in any order are allowed
// (testing/tolerance.h). And the few rows of a decode step find four times as many multiprocessors.
#pragma once

#include <cstdint>

#include "ops/cuda/context.h"
#include "ops/types.h"

namespace hadal::cuda {

struct Bf16Linear {
  const uint16_t* x;     // bf16 [rows, k]
  const uint16_t* w[2];  // bf16 [n, k] each; the second may be null
  int rows, n, k;
  // [rows, n or 2 n], the second's results behind the first's: fp32, or bf16 where n is no multiple of 128.
  float* y;
  uint16_t* y_bf16;
};

// By the shape of the weight alone.
bool bf16_linear_takes(const CudaContext& cuda, const Weight& w);
void bf16_linear(CudaContext& cuda, const Bf16Linear& p);

}  // namespace hadal::cuda
