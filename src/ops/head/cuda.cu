#include "ops/cuda/errors.h"
#include "ops/cuda/linear.h"
#include "ops/head/head.h"
#include "ops/head/stream.h"

namespace hadal::cuda {

void head(Context& context, const HeadArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  HADAL_CUDA_CHECK(args.logits.type == DType::f32 && args.logits.cols == args.head.n && args.x.cols == args.head.k);
  if (args.rows == 0) return;
  if (!cuda.portable() && stream_takes(args.head))
    return stream_product(cuda, args.head, args.x.bf16(), args.rows, args.logits.f32());
  LinearArgs linear_head = linear_args(args.x, args.head, args.logits);
  linear_head.rows = args.rows;
  linear(cuda, linear_head);
}

}  // namespace hadal::cuda
