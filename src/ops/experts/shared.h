// The shared expert: a feed-forward of every row, by the dense linears.
#pragma once

#include "ops/cuda/context.h"
#include "ops/experts/experts.h"

namespace hadal::cuda {

// bf16(shared(x)) [rows, d], or null when there is no shared expert.
const uint16_t* shared_expert(CudaContext& context, Scratch& scratch, const ExpertsArgs& args);

}  // namespace hadal::cuda
