// RMSNorm of many rows.      spec 3.1
#pragma once

#include "ops/cuda/context.h"

namespace hadal::cuda {

// y = bf16( w * (x * rsqrt(mean(x^2) + eps)) ) for rows of bf16; y may be x.
void rms_norm(CudaContext& context, const uint16_t* x, int rows, int dim, const uint16_t* w, float eps, uint16_t* y);

}  // namespace hadal::cuda
