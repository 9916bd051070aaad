#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace hadal {
namespace {

// SplitMix64's finaliser: every input bit reaches every output bit.
uint64_t scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

struct Scored {
  float logit;
  int32_t token;
};

bool more_likely(const Scored& a, const Scored& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Tokens that top_k, top_p and min_p keep. Unless a filter is on, that is all of them in any order.
std::vector<Scored> filtered(std::span<const float> logits, const SamplingOptions& o) {
  std::vector<Scored> kept(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) kept[i] = {logits[i], static_cast<int32_t>(i)};
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < kept.size()) {
    std::nth_element(kept.begin(), kept.begin() + o.top_k, kept.end(), more_likely);
    kept.resize(static_cast<size_t>(o.top_k));
  }
  const double best = std::max_element(kept.begin(), kept.end(), [](const Scored& a, const Scored& b) {
                        return a.logit < b.logit;
                      })->logit;
  const auto weight = [&](const Scored& s) { return std::exp((static_cast<double>(s.logit) - best) / o.temperature); };
  if (o.top_p < 1.0) {
    double total = 0;
    for (const Scored& s : kept) total += weight(s);
    // Sorted in growing pieces: the nucleus is usually small.
    double sum = 0;
    size_t done = 0;
    while (done < kept.size() && sum < o.top_p * total) {
      const size_t piece = std::min(kept.size(), done + std::max<size_t>(64, done));
      std::partial_sort(kept.begin() + static_cast<std::ptrdiff_t>(done),
                        kept.begin() + static_cast<std::ptrdiff_t>(piece), kept.end(), more_likely);
      while (done < piece && sum < o.top_p * total) sum += weight(kept[done++]);
    }
    kept.resize(std::max<size_t>(1, done));
  }
  if (o.min_p > 0) std::erase_if(kept, [&](const Scored& s) { return weight(s) < o.min_p; });
  return kept;
}

}  // namespace

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

namespace {

uint64_t noise_row(uint64_t seed, int64_t position) {
  return scramble(scramble(seed) ^ static_cast<uint64_t>(position));
}
uint64_t noise_bits(uint64_t row, int32_t token) {
  return scramble(row ^ static_cast<uint64_t>(static_cast<uint32_t>(token)));
}

double gumbel(uint64_t bits) {
  const double uniform = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;  // in (0, 1)
  return -std::log(-std::log(uniform));
}

// No less than gumbel(bits), at a fraction of its cost. With k leading ones 1 - uniform is more than 2^-(k+2), and
// -log(uniform) no less than that.
double gumbel_bound(uint64_t bits) { return 0.6931471806 * (std::countl_one(bits) + 2); }

}  // namespace

double gumbel_noise(uint64_t seed, int64_t position, int32_t token) {
  return gumbel(noise_bits(noise_row(seed, position), token));
}

int32_t arg_max(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) fail(ErrorKind::invalid_data, "the logit of token {} is not a number", i);
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<int32_t>(best);
}

int32_t sample(std::span<const float> logits, const SamplingOptions& options, int64_t position) {
  const int32_t most_likely = arg_max(logits);
  if (options.temperature == 0) return most_likely;
  const uint64_t row = noise_row(options.seed, position);
  const auto value = [&](int32_t token) {
    return static_cast<double>(logits[static_cast<size_t>(token)]) / options.temperature +
           gumbel(noise_bits(row, token));
  };
  // No filter drops the most likely token, so the search begins with it; most others cannot win whatever their noise is.
  int32_t chosen = most_likely;
  double best = value(most_likely);
  const auto consider = [&](float logit, int32_t token) {
    const uint64_t bits = noise_bits(row, token);
    if (static_cast<double>(logit) / options.temperature + gumbel_bound(bits) < best) return;
    const double v = value(token);
    if (v > best || (v == best && token < chosen)) {
      chosen = token;
      best = v;
    }
  };
  if (options.top_k == 0 && options.top_p == 1 && options.min_p == 0) {
    for (size_t t = 0; t < logits.size(); ++t) consider(logits[t], static_cast<int32_t>(t));
  } else {
    for (const Scored& s : filtered(logits, options)) consider(s.logit, s.token);
  }
  return chosen;
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
