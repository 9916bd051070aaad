// Any number of copies and any width, one CTA a row: for shapes that the fused kernel does not take.
#pragma once

#include "ops/cuda/context.h"
#include "ops/hyper_connection/hyper_connection.h"

namespace hadal::cuda {

void hyper_connection_general(CudaContext& cuda, const HyperConnectionArgs& args);

}  // namespace hadal::cuda
