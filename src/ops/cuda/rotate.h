// Queries that are rotated where they are read, or in a pass.
#pragma once

#include "ops/cuda/context.h"
#include "ops/types.h"

namespace hadal::cuda {

// Operators::query_angles: f32 [rows, rope.dim], cosine and sine of each pair. With few rows a pass takes no time.
Tensor query_angles(Context& context, int rows, const Rope& rope);

// Rotates the last rope.dim channels of every head of q [rows, heads * head_dim], in place.
void rotate_queries(CudaContext& context, const Tensor& q, int heads, int head_dim, const Tensor& angles);

}  // namespace hadal::cuda
