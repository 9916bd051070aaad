#ifdef HADAL_HAVE_CUDA
#include "ops/operators.h"

#include "ops/cuda/packed_linear.h"

namespace hadal {

// Dense FP8 weights get the layout of the matrix instruction. Not for the parts of a FeedForward: the experts operator packs
// those itself, gate and up together.
static void prepare_weight(Context& context, Weight& weight) {
  if (cuda::can_pack(weight)) cuda::pack_linear(cuda::CudaContext::of(context), weight);
}

const Operators& cuda_operators() {
#define HADAL_ENTRY(op, Args) .op = cuda::op,
  static const Operators operators = {.backend = "cuda", HADAL_OPERATORS(HADAL_ENTRY).prepare_weight = prepare_weight};
#undef HADAL_ENTRY
  return operators;
}

}  // namespace hadal
#endif
