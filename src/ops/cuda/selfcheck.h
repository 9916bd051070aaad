// Checks of the CUDA building blocks that no operator case can see.
#pragma once

#include <string>
#include <vector>

#include "ops/cuda/context.h"

namespace hadal::cuda {

// The device codecs give the bits of base/dtype.h: all codes, all bf16 values, midpoints and their neighbours. Then a
// linear over every code and scale byte, whose sums have one term: the fast decoders against the codecs.
std::vector<std::string> check_codecs(CudaContext& context);

// A row of a linear has the same bits alone and among 2 to 300 others, for every weight format.
std::vector<std::string> check_row_invariance(CudaContext& context);

// Products of FP8 by FP8: near the 16-bit ones of the same operands, the same bits for 1 to 300 rows, and results quantised
// in the kernel as by a pass over them. The context's numerics are `fp8`.
std::vector<std::string> check_fp8_linear(CudaContext& context);

}  // namespace hadal::cuda
