// The two products of the compressor in 16 bits on Hopper's matrix unit: y = [W0; W1] x with fp32 results.
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

struct Products {
  const uint16_t* x;     // bf16 [rows, k]
  const uint16_t* w[2];  // bf16 [n, k] each; the second may be null
  int rows, n, k;
  float* y;  // fp32 [rows, n or 2 n]: the second's results behind the first's
};

// By the shape of the weights alone.
bool products_take(const CudaContext& cuda, const Weight& w);
void products(CudaContext& cuda, const Products& p);

}  // namespace hadal::cuda
