#include "ops/attention_output/attention_output.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/linear_input.h"

namespace hadal::cuda {

void attention_output(Context& context, const AttentionOutputArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.groups > 0 && args.o.cols == int64_t{args.groups} * args.wo_a.k && args.wo_b.k == args.wo_a.n);
  Scratch scratch(cuda);
  // In `fp8` numerics u exists as its Q4 alone.
  Fp8Rows u_fp8;
  Tensor u{nullptr, DType::bf16, args.rows, args.wo_a.n};
  if (reads_fp8(cuda, args.wo_a, args.groups) && wants_fp8(cuda, args.rows, args.wo_b))
    u_fp8 = fp8_rows(scratch, args.rows, args.wo_a.n);
  else
    u = cuda.activations(args.rows, args.wo_a.n);
  LinearArgs grouped = linear_args(args.o, args.wo_a, u);
  grouped.groups = args.groups;
  grouped.q1 = false;  // published as a bf16 product (spec 3.1)
  grouped.rows = args.rows;
  if (args.o.type == DType::u8) grouped.x_fp8 = fp8_rows(args.o);
  grouped.y_fp8 = u_fp8;
  linear(cuda, grouped);
  LinearArgs output = linear_args(u, args.wo_b, args.y);
  output.rows = args.rows;
  output.x_fp8 = u_fp8;
  linear(cuda, output);
}

}  // namespace hadal::cuda
