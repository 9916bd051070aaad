#include "ops/router/router.h"

#include <cmath>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {
namespace {

float score_of(double logit) { return static_cast<float>(std::sqrt(logit > 20 ? logit : std::log1p(std::exp(logit)))); }

// The topk largest keys into ids, ascending. Equal keys: the lower id, so a later one must be larger to get in.
void select(const float* key, int count, int topk, int32_t* ids) {
  int n = 0;
  for (int e = 0; e < count; ++e) {
    if (n == topk && !(key[e] > key[ids[n - 1]])) continue;
    int at = n < topk ? n++ : n - 1;
    for (; at > 0 && key[e] > key[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = e;
  }
  std::sort(ids, ids + n);
}

}  // namespace

void router(Context& any, const RouterArgs& args) {
  CpuContext& context = cpu_context(any);
  const int experts = args.gate.n;
  check_tensor(args.x, DType::f32, args.rows, args.x.cols, "x");
  check_weight(args.gate, experts, args.x.cols, "gate");
  check_tensor(args.ids, DType::i32, args.rows, args.topk, "ids");
  check_tensor(args.weights, DType::f32, args.rows, args.topk, "weights");
  if (args.scores) check_tensor(args.scores, DType::f32, args.rows, experts, "scores");
  HADAL_CHECK(args.topk <= experts);

  Scratch scratch(context);
  float* logit = scratch.get<float>(int64_t{args.rows} * experts * 2);
  const Input x =
      prepare(context, scratch, args.x.f32(), args.x.cols, args.rows, args.gate.k, Layout::split, InputRounding::none);
  multiply(context, {{.weight = &args.gate, .x = x, .rows = args.rows, .y = logit, .y_stride = 2 * experts}});
  parallel_ranges(context, args.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* score = logit + r * 2 * experts;
      float* key = score + experts;
      const bool image = args.image != nullptr && args.image[r] != 0;
      HADAL_CHECK(!image || args.bias_vl != nullptr);
      const float* bias = image ? args.bias_vl : args.bias;
      for (int e = 0; e < experts; ++e) {
        score[e] = score_of(score[e] / static_cast<double>(args.gate_temp));
        key[e] = score[e] + bias[e];
      }
      int32_t* ids = args.ids.i32(r);
      select(key, experts, args.topk, ids);
      double total = 1e-20;
      for (int i = 0; i < args.topk; ++i) total += score[ids[i]];
      for (int i = 0; i < args.topk; ++i)
        args.weights.f32(r)[i] = static_cast<float>(score[ids[i]] / total * args.route_scale);
      if (args.scores) std::copy_n(score, experts, args.scores.f32(r));
    }
  });
}

}  // namespace hadal::cpu
