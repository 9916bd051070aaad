// The shared expert: a feed-forward of every row, by the dense linears.
#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/fp8_rows.h"
#include "ops/experts/experts.h"

namespace hadal::cuda {

// Room for Q4 of args.x where the shared expert reads that, otherwise nothing.
Fp8Rows shared_expert_rows(CudaContext& context, Scratch& scratch, const ExpertsArgs& args);

// bf16(shared(x)) [rows, d], or nothing when there is no shared expert. `x` is filled already, or nothing.
Tensor shared_expert(CudaContext& context, Scratch& scratch, const ExpertsArgs& args, Fp8Rows x);

// Operators::begin_experts: the shared expert of few rows.
void begin_experts(Context& context, ExpertsArgs& args);

}  // namespace hadal::cuda
