// RMSNorm of many rows.      spec 3.1
#pragma once

#include "ops/cuda/context.h"
#include "ops/cuda/fp8_rows.h"

namespace hadal::cuda {

// y = bf16( w * (x * rsqrt(mean(x^2) + eps)) ) for rows of bf16; y may be x.
void rms_norm(CudaContext& context, const uint16_t* x, int rows, int dim, const uint16_t* w, float eps, uint16_t* y);
// The same and Q4 of y; dim is a multiple of 256, at most 8192. Its sums have another order.
void rms_norm_fp8(CudaContext& context, const uint16_t* x, int rows, int dim, const uint16_t* w, float eps, uint16_t* y,
                  const Fp8Rows& out);

}  // namespace hadal::cuda
