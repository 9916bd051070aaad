#include <algorithm>
#include <bit>
#include <vector>

#include "ops/cpu/linear.h"
#include "ops/operators.h"
#include "ops/sample/noise.h"

namespace hadal {
namespace {

// The most likely token; -1 when a logit is not a number.
int32_t most_likely_of(std::span<const float> logits) {
  size_t best = 0;
  bool numbers = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    numbers &= logits[i] == logits[i];
    if (logits[i] > logits[best]) best = i;
  }
  return numbers ? static_cast<int32_t>(best) : -1;
}

// What top_k, top_p and min_p keep, in any order.
std::vector<Scored> filtered(std::span<const float> logits, float largest, const SampleRow& o) {
  std::vector<Scored> kept(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) kept[i] = {logits[i], static_cast<int32_t>(i)};
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < kept.size()) {
    std::nth_element(kept.begin(), kept.begin() + o.top_k, kept.end(), more_likely);
    kept.resize(static_cast<size_t>(o.top_k));
  }
  const auto weight = [&](const Scored& s) { return sampling::weight(s.logit, largest, o.temperature); };
  if (o.top_p < 1) {
    uint64_t total = 0;
    for (const Scored& s : kept) total += sampling::weight_units(weight(s));
    const uint64_t wanted = sampling::nucleus_units(total, o.top_p);
    // Sorted in growing pieces: the nucleus is usually small.
    uint64_t sum = 0;
    size_t done = 0;
    while (sum < wanted) {
      const size_t piece = std::min(kept.size(), done + std::max<size_t>(64, done));
      std::partial_sort(kept.begin() + static_cast<std::ptrdiff_t>(done),
                        kept.begin() + static_cast<std::ptrdiff_t>(piece), kept.end(), more_likely);
      while (done < piece && sum < wanted) sum += sampling::weight_units(weight(kept[done++]));
    }
    kept.resize(done);
  }
  if (o.min_p > 0) std::erase_if(kept, [&](const Scored& s) { return weight(s) < o.min_p; });
  return kept;
}

}  // namespace

double gumbel_noise(uint64_t seed, int64_t position, int32_t token) {
  return sampling::gumbel(sampling::noise_bits(sampling::noise_of_position(seed, position), token));
}

int32_t sample_on_host(std::span<const float> logits, const SampleRow& o) {
  const int32_t most_likely = most_likely_of(logits);
  if (most_likely < 0 || o.temperature == 0) return most_likely;
  const float largest = logits[static_cast<size_t>(most_likely)];
  if (std::isinf(largest)) return most_likely;

  const uint64_t noise = sampling::noise_of_position(o.seed, o.position);
  const auto value = [&](float logit, uint64_t bits) {
    return static_cast<double>(logit) / o.temperature + sampling::gumbel(bits);
  };
  // No filter drops the most likely token, so the search begins with it; most others cannot win whatever their noise is.
  int32_t chosen = most_likely;
  double best = value(largest, sampling::noise_bits(noise, most_likely));
  const auto consider = [&](float logit, int32_t token) {
    const uint64_t bits = sampling::noise_bits(noise, token);
    if (static_cast<double>(logit) / o.temperature + sampling::gumbel_bound(std::countl_one(bits)) < best) return;
    const double v = value(logit, bits);
    if (v > best || (v == best && token < chosen)) {
      chosen = token;
      best = v;
    }
  };
  if (o.top_k == 0 && o.top_p == 1 && o.min_p == 0) {
    for (size_t t = 0; t < logits.size(); ++t) consider(logits[t], static_cast<int32_t>(t));
  } else {
    for (const Scored& s : filtered(logits, largest, o)) consider(s.logit, s.token);
  }
  return chosen;
}

namespace cpu {

void sample(Context& any, const SampleArgs& args) {
  check_tensor(args.token, DType::i32, args.rows, 1, "token");
  check_tensor(args.logits, DType::f32, args.logits.rows, args.logits.cols, "logits");
  cpu_context(any).pool().parallel_for(args.rows, [&](int r) {
    const SampleRow& row = args.row[r];
    *args.token.i32(r) = sample_on_host({args.logits.f32(row.logits_row), static_cast<size_t>(args.logits.cols)}, row);
  });
}

}  // namespace cpu
}  // namespace hadal
