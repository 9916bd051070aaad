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

}  // namespace hadal::cuda
