// FP8 weights as `fp8` numerics have them: ops/cpu/fold.h on the device.
#pragma once

#include "ops/cuda/context.h"
#include "ops/types.h"

namespace hadal::cuda {

// Folds the published bytes of an FP8 weight, which lie on the device, in place. Once folded they stay as they are.
void fold_weight(CudaContext& context, const Weight& weight);

}  // namespace hadal::cuda
