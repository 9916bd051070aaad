#include "ops/head/head.h"

#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {

// Products of bf16 values are exact and are added in fp32, by the bf16 dot product where x lies on its grid: logits are the
// one linear whose output is not rounded.
void head(Context& any, const HeadArgs& args) {
  CpuContext& context = cpu_context(any);
  check_tensor(args.x, DType::f32, args.rows, args.x.cols, "x");
  check_weight(args.head, args.head.n, args.x.cols, "head");
  check_tensor(args.logits, DType::f32, args.rows, args.head.n, "logits");
  Scratch scratch(context);
  const Input x = prepare(context, scratch, args.x.f32(), args.x.cols, args.rows, args.head.k,
                          layout_of(context, args.head), InputRounding::none);
  multiply(context,
           {{.weight = &args.head, .x = x, .rows = args.rows, .y = args.logits.f32(), .y_stride = args.logits.cols}});
}

}  // namespace hadal::cpu
