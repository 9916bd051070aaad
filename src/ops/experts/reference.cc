// Routed experts and the shared expert.      spec 3.8
#include "ops/experts/experts.h"

#include <algorithm>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {
namespace {

// bf16( w2 bf16( weight * silu(gate) * up ) ): the routing weight comes before w2.
Row feed_forward(Numerics numerics, const FeedForward& expert, const float* x, int64_t d, float limit, float weight) {
  const Row gate = linear(numerics, expert.w1, x, 1, d);
  const Row up = linear(numerics, expert.w3, x, 1, d);
  Row product(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double clamped_up = std::clamp(up[i], -limit, limit);
    const double clamped_gate = std::min(gate[i], limit);  // no lower clamp
    product[i] = round_activation(numerics, weight * (silu(clamped_gate) * clamped_up));
  }
  return linear(numerics, expert.w2, product.data(), 1, static_cast<int64_t>(product.size()));
}

void check_expert(const FeedForward& expert, int64_t d) {
  check_weight(expert.w1, expert.w1.n, d, "w1");
  check_weight(expert.w3, expert.w1.n, d, "w3");
  check_weight(expert.w2, d, expert.w1.n, "w2");
}

}  // namespace

void experts(Context& context, const ExpertsArgs& args) {
  const int64_t d = args.x.cols;
  check_shape(args.x, DType::f32, args.rows, d, "x");
  check_shape(args.y, DType::f32, args.rows, d, "y");
  check_shape(args.ids, DType::i32, args.rows, args.topk, "ids");
  check_shape(args.weights, DType::f32, args.rows, args.topk, "weights");
  check_expert(args.shared, d);

  for (int r = 0; r < args.rows; ++r) {
    std::vector<double> sum(d);
    for (int i = 0; i < args.topk; ++i) {  // ascending expert id: `ids` is sorted
      const int32_t id = args.ids.i32(r)[i];
      HADAL_CHECK(id >= 0 && id < args.experts->count());
      HADAL_CHECK(i == 0 || id > args.ids.i32(r)[i - 1]);
      if (!args.experts->is_local(id)) continue;
      const FeedForward& expert = args.experts->expert(id);
      check_expert(expert, d);
      const Row out = feed_forward(context.numerics(), expert, args.x.f32(r), d, args.limit, args.weights.f32(r)[i]);
      for (int64_t c = 0; c < d; ++c) sum[c] += out[c];
    }
    const Row shared = feed_forward(context.numerics(), args.shared, args.x.f32(r), d, args.limit, 1.0f);
    for (int64_t c = 0; c < d; ++c) args.y.f32(r)[c] = round_activation(context.numerics(), sum[c] + shared[c]);
  }
}

}  // namespace hadal::reference
