// Choosing tokens from logits: an arg-max under noise that seed, position and token determine.
// include/hadal/request.h says what the options mean, docs/design.md why (decision 6).
#pragma once

#include <span>

#include "ops/types.h"

namespace hadal {

// The choice of one token.
struct SampleRow {
  int32_t logits_row = 0;
  int32_t top_k = 0;       // 0: no limit
  double temperature = 0;  // 0: the most likely token
  double top_p = 1;
  double min_p = 0;
  uint64_t seed = 0;
  int64_t position = 0;  // that the token will take
};

// Tokens are ordered by their logits, equal ones by id, the lower first. Of all, top_k keeps the first top_k; of those, top_p the
// shortest beginning whose weights exp((logit - largest) / temperature) reach top_p times the weights of all of those; of those,
// min_p what weighs min_p or more. token = arg-max of logit / temperature + gumbel_noise over what is kept. Weights are added up
// in units of 2^-44, as integers, so that no order of adding shows.
struct SampleArgs {
  int rows = 0;
  const SampleRow* row = nullptr;  // [rows]
  Tensor logits;                   // f32 [any, vocab], vocab at most 2^18
  Tensor token;                    // i32 [rows, 1]; -1 where a logit is not a number
};

// The same for one row in host memory.
int32_t sample_on_host(std::span<const float> logits, const SampleRow& o);

// The order of tokens, for hosts.
struct Scored {
  float logit;
  int32_t token;
};
inline bool more_likely(const Scored& a, const Scored& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Gumbel noise of one token, from a counter-based generator.
double gumbel_noise(uint64_t seed, int64_t position, int32_t token);

}  // namespace hadal
