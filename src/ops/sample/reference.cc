// Choosing tokens from logits.      docs/design.md, decision 6
#include <algorithm>
#include <numeric>

#include "ops/operators.h"
#include "ops/reference_math.h"
#include "ops/sample/noise.h"

namespace hadal::reference {
namespace {

int32_t choose(const float* logits, int vocab, const SampleRow& o) {
  for (int t = 0; t < vocab; ++t)
    if (std::isnan(logits[t])) return -1;
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const float largest = logits[order[0]];
  if (o.temperature == 0 || std::isinf(largest)) return order[0];

  if (o.top_k > 0 && o.top_k < vocab) order.resize(static_cast<size_t>(o.top_k));
  const auto weight = [&](int32_t t) { return sampling::weight(logits[t], largest, o.temperature); };
  if (o.top_p < 1) {
    uint64_t total = 0, sum = 0;
    for (const int32_t t : order) total += sampling::weight_units(weight(t));
    const uint64_t wanted = sampling::nucleus_units(total, o.top_p);
    size_t kept = 0;
    while (sum < wanted) sum += sampling::weight_units(weight(order[kept++]));
    order.resize(kept);
  }
  std::erase_if(order, [&](int32_t t) { return weight(t) < o.min_p; });

  int32_t best = order[0];
  double best_value = -INFINITY;
  for (const int32_t t : order) {
    const double value = static_cast<double>(logits[t]) / o.temperature + gumbel_noise(o.seed, o.position, t);
    if (value > best_value || (value == best_value && t < best)) {
      best = t;
      best_value = value;
    }
  }
  return best;
}

}  // namespace

void sample(Context&, const SampleArgs& args) {
  check_shape(args.token, DType::i32, args.rows, 1, "token");
  for (int r = 0; r < args.rows; ++r)
    *args.token.i32(r) =
        choose(args.logits.f32(args.row[r].logits_row), static_cast<int>(args.logits.cols), args.row[r]);
}

}  // namespace hadal::reference
