// Logits.      spec 3.10
#include "ops/head/head.h"

#include <algorithm>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

void head(Context& context, const HeadArgs& args) {
  check_shape(args.x, DType::f32, args.rows, args.x.cols, "x");
  check_weight(args.head, args.head.n, args.x.cols, "head");
  check_shape(args.logits, DType::f32, args.rows, args.head.n, "logits");
  const std::vector<float> y = linear_f32(context.numerics(), args.head, args.x.f32(), args.rows, args.x.cols);
  std::copy(y.begin(), y.end(), args.logits.f32());
}

}  // namespace hadal::reference
