// The router.      spec 3.7
#include "ops/router/router.h"

#include <algorithm>
#include <numeric>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

void router(Context& context, const RouterArgs& args) {
  (void)context;  // fp32 in every mode: nothing is rounded
  const int experts = args.gate.n;
  check_shape(args.x, DType::f32, args.rows, args.x.cols, "x");
  check_weight(args.gate, experts, args.x.cols, "gate");
  check_shape(args.ids, DType::i32, args.rows, args.topk, "ids");
  check_shape(args.weights, DType::f32, args.rows, args.topk, "weights");
  if (args.scores) check_shape(args.scores, DType::f32, args.rows, experts, "scores");
  HADAL_CHECK(args.topk <= experts);

  for (int r = 0; r < args.rows; ++r) {
    Row score(experts), key(experts);
    const bool image = args.image != nullptr && args.image[r] != 0;
    HADAL_CHECK(!image || args.bias_vl != nullptr);
    const float* bias = image ? args.bias_vl : args.bias;
    for (int e = 0; e < experts; ++e) {
      const double logit = dot(weight_row(args.gate, e).data(), args.x.f32(r), args.x.cols) / args.gate_temp;
      score[e] = static_cast<float>(std::sqrt(softplus(logit)));
      key[e] = score[e] + bias[e];  // the bias selects, it does not weigh
    }

    std::vector<int32_t> ids(experts);
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return key[a] > key[b]; });
    ids.resize(args.topk);
    std::sort(ids.begin(), ids.end());

    double sum = 1e-20;
    for (const int32_t e : ids) sum += score[e];
    for (int i = 0; i < args.topk; ++i) {
      args.ids.i32(r)[i] = ids[i];
      args.weights.f32(r)[i] = static_cast<float>(score[ids[i]] / sum * args.route_scale);
    }
    if (args.scores) std::copy(score.begin(), score.end(), args.scores.f32(r));
  }
}

}  // namespace hadal::reference
