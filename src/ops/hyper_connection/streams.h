// Hyper-connections of four copies in one pass over the residual streams.
#pragma once

#include "ops/cuda/context.h"
#include "ops/hyper_connection/hyper_connection.h"

namespace hadal::cuda {

// Four copies, d a multiple of 32, and few enough columns that the CTAs of one row are resident together.
bool streams_take(const CudaContext& cuda, const HyperConnectionArgs& args);
// Whether x_rounded is made in the same pass.
bool streams_round(const HyperConnectionArgs& args);
void hyper_connection_streams(CudaContext& cuda, const HyperConnectionArgs& args);

}  // namespace hadal::cuda
