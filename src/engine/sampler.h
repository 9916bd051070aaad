// Choosing the next token. The sample is the arg-max of logit / temperature + Gumbel noise over the tokens that the filters
// keep, and the noise is a function of (seed, position, token): a request's tokens do not depend on what else runs, and a
// draft is right exactly when it equals that sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hadal {

struct SamplingOptions {
  double temperature = 1.0;  // 0: the most likely token
  int top_k = 0;             // 0: off
  double top_p = 1.0;        // smallest set of the most likely tokens that holds at least this probability
  double min_p = 0.0;        // drops tokens below this share of the most likely one
  uint64_t seed = 0;
};

// Throws invalid_argument naming the option, its value and the range.
void validate(const SamplingOptions& options);

// Gumbel noise of one token, from a counter-based generator.
double gumbel_noise(uint64_t seed, int64_t position, int32_t token);

// The token for `position` (the position that it will take). Equal scores: lower id first. Filters apply in the order
// top_k, top_p, min_p, at the given temperature. Throws invalid_data when a logit is NaN.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, int64_t position);

int32_t arg_max(std::span<const float> logits);

}  // namespace hadal
