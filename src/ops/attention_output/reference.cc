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

  // Published as a bf16 product: its input is rounded in `fp8` numerics only.
  std::vector<float> o(args.o.f32(), args.o.f32() + args.rows * groups * k);
  if (context.numerics() == Numerics::fp8 && args.wo_a.format == WeightFormat::fp8_block32)
    for (int64_t i = 0; i < args.rows * groups; ++i) round_fp8_128(o.data() + i * k, static_cast<int>(k));
  // wo_a is block diagonal: rows i * o_lora .. of it see group i of the input only.
  std::vector<float> u(args.rows * groups * o_lora);
  for (int64_t n = 0; n < groups * o_lora; ++n) {
    const Row row = weight_row(context.numerics(), args.wo_a, n);
    for (int r = 0; r < args.rows; ++r)
      u[r * groups * o_lora + n] =
          round_activation(context.numerics(), dot(row.data(), o.data() + (r * groups + n / o_lora) * k, k));
  }
  const std::vector<float> y = linear(context.numerics(), args.wo_b, u.data(), args.rows, groups * o_lora);
  std::copy(y.begin(), y.end(), args.y.f32());
}

}  // namespace hadal::reference
