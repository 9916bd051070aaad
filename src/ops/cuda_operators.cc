#ifdef HADAL_HAVE_CUDA
#include "ops/operators.h"

namespace hadal {

const Operators& cuda_operators() {
#define HADAL_ENTRY(op, Args) .op = cuda::op,
  static const Operators operators = {.backend = "cuda", HADAL_OPERATORS(HADAL_ENTRY)};
#undef HADAL_ENTRY
  return operators;
}

}  // namespace hadal
#endif
