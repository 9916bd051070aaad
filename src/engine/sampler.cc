#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace hadal {

void validate(const SamplingOptions& o) {
  const auto check = [](bool ok, const char* name, double value, const char* range) {
    if (!ok) fail(ErrorKind::invalid_argument, "{} is {}, expected {}", name, value, range);
  };
  check(o.temperature >= 0 && o.temperature <= 100, "temperature", o.temperature, "0 to 100");
  check(o.top_k >= 0, "top_k", o.top_k, "0 (off) or more");
  check(o.top_p > 0 && o.top_p <= 1, "top_p", o.top_p, "more than 0, at most 1");
  check(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "0 to 1");
  check(o.repetition_penalty > 0 && o.repetition_penalty <= 10, "repetition_penalty", o.repetition_penalty,
        "more than 0, at most 10");
  check(o.presence_penalty >= -2 && o.presence_penalty <= 2, "presence_penalty", o.presence_penalty, "-2 to 2");
  check(o.frequency_penalty >= -2 && o.frequency_penalty <= 2, "frequency_penalty", o.frequency_penalty, "-2 to 2");
  for (const auto& [token, bias] : o.logit_bias)
    check(bias >= -100 && bias <= 100, "a logit_bias", bias, "-100 to 100");
}

int32_t arg_max(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) fail(ErrorKind::invalid_data, "the logit of token {} is not a number", i);
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<int32_t>(best);
}

SampleRow sample_row(const SamplingOptions& o, int64_t position) {
  // At such a temperature no noise reaches from one float to the next, and quotients come near the end of a double.
  constexpr double kCold = 1e-100;
  return {.top_k = o.top_k,
          .temperature = o.temperature < kCold ? 0 : o.temperature,
          .top_p = o.top_p,
          .min_p = o.min_p,
          .seed = o.seed,
          .position = position};
}

int32_t sample(std::span<const float> logits, const SamplingOptions& options, int64_t position) {
  const int32_t token = sample_on_host(logits, sample_row(options, position));
  return token >= 0 ? token : arg_max(logits);  // which says what is wrong
}

bool has_penalties(const SamplingOptions& o) {
  return o.repetition_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0 || !o.logit_bias.empty();
}

void apply_penalties(std::span<float> logits, const SamplingOptions& o, const TokenHistory& history) {
  for (const auto& [token, count] : history.counts()) {
    double v = logits[static_cast<size_t>(token)];
    v = v > 0 ? v / o.repetition_penalty : v * o.repetition_penalty;
    if (count > 0) v -= o.presence_penalty + o.frequency_penalty * count;
    logits[static_cast<size_t>(token)] = static_cast<float>(v);
  }
  for (const auto& [token, bias] : o.logit_bias) logits[static_cast<size_t>(token)] += static_cast<float>(bias);
}

GeneratedToken with_logprobs(std::span<const float> logits, int32_t token, int top) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float v : logits) total += std::exp(static_cast<double>(v) - best);
  const double log_total = best + std::log(total);
  const auto logprob = [&](int32_t t) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(t)]) - log_total);
  };
  GeneratedToken result{token, logprob(token), {}};
  std::vector<Scored> all(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) all[i] = {logits[i], static_cast<int32_t>(i)};
  const auto n = std::min<std::ptrdiff_t>(top, static_cast<std::ptrdiff_t>(all.size()));
  std::partial_sort(all.begin(), all.begin() + n, all.end(), more_likely);
  for (std::ptrdiff_t i = 0; i < n; ++i)
    result.most_likely.push_back({all[static_cast<size_t>(i)].token, logprob(all[static_cast<size_t>(i)].token)});
  return result;
}

}  // namespace hadal
