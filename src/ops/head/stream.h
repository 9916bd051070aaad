// Logits of up to 128 rows while the head's weights stream by once.
#pragma once

#include "ops/cuda/context.h"
#include "ops/types.h"

namespace hadal::cuda {

// By the shape of the weight alone: bf16, n a multiple of 64, k of 256.
bool stream_takes(const Weight& weight);
// y [rows, n] fp32 = W x, x bf16 [rows, k]. k is summed in four chains in ascending k, which are added in ascending order:
// the error of one chain of 5,120 would be 4 times that of fp32 sums.
void stream_product(CudaContext& cuda, const Weight& weight, const uint16_t* x, int rows, float* y);

}  // namespace hadal::cuda
