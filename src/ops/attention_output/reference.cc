// The grouped low-rank output projection.      spec 3.3
#include "ops/attention_output/attention_output.h"

#include <algorithm>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

void attention_output(Context& context, const AttentionOutputArgs& args) {
  const int64_t groups = args.groups;
  HADAL_CHECK(groups > 0 && args.o.cols % groups == 0 && args.wo_a.n % groups == 0);
  const int64_t k = args.o.cols / groups, o_lora = args.wo_a.n / groups;
  check_shape(args.o, DType::f32, args.rows, groups * k, "o");
  check_weight(args.wo_a, groups * o_lora, k, "wo_a");
  check_weight(args.wo_b, args.wo_b.n, groups * o_lora, "wo_b");
  check_shape(args.y, DType::f32, args.rows, args.wo_b.n, "y");

  // wo_a is block diagonal: rows i * o_lora .. of it see group i of the input only. Its input is never
  // quantised.
  std::vector<float> u(args.rows * groups * o_lora);
  for (int64_t n = 0; n < groups * o_lora; ++n) {
    const Row row = weight_row(args.wo_a, n);
    for (int r = 0; r < args.rows; ++r)
      u[r * groups * o_lora + n] =
          round_activation(context.numerics(), dot(row.data(), args.o.f32(r) + n / o_lora * k, k));
  }
  const std::vector<float> y = linear(context.numerics(), args.wo_b, u.data(), args.rows, groups * o_lora);
  std::copy(y.begin(), y.end(), args.y.f32());
}

}  // namespace hadal::reference
