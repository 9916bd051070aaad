// Router logits of the release's gate on the tensor cores, and the selection behind them.
//
// k is cut into four chains, each summed by one sequence of tensor core products of 16 values in ascending k, and the four
// are added in ascending order: the rms error of a chain of 1,280 is 1.3e-6 of the result. wgmma (many rows) and mma.sync
// (few) give the same bits on Hopper, as 100,000 sums of 1,280 products have shown; the test CudaRows holds them to it.
#pragma once

#include "ops/cuda/context.h"
#include "ops/router/select.cuh"

namespace hadal::cuda {

constexpr int kRouterChains = 4, kRouterMostExperts = 384;

struct RouterLogits {
  const uint16_t* x;     // [rows, k]
  const uint16_t* gate;  // [experts, k]
  int k;
  RouterSelect select;
};

// By the shape of the gate alone.
bool router_takes(int experts, int k);
void route_many(CudaContext& cuda, const RouterLogits& p);  // any number of rows
// At most 128 rows, and its CTAs are resident together. The same bits.
bool few_takes(const CudaContext& cuda, const RouterSelect& p);
void route_few(CudaContext& cuda, const RouterLogits& p);
constexpr int kRouterFewRows = 128;

}  // namespace hadal::cuda
