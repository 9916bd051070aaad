// Choosing the next token (include/hadal/request.h says how).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "hadal/request.h"
#include "ops/sample/sample.h"

namespace hadal {

// Throws invalid_argument naming the option, its value and the range.
void validate(const SamplingOptions& options);

// The choice of the token for `position` (the position that it will take), as the operators have it.
SampleRow sample_row(const SamplingOptions& options, int64_t position);

// That token. Throws invalid_data when a logit is NaN.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, int64_t position);

int32_t arg_max(std::span<const float> logits);

// What the penalties know of the tokens so far. Copied to look ahead along drafts.
class TokenHistory {
 public:
  TokenHistory() = default;
  explicit TokenHistory(std::span<const int32_t> prompt) {
    for (const int32_t t : prompt) counts_.try_emplace(t, 0);
  }
  void push(int32_t token) { ++counts_[token]; }
  // token -> how often it was generated; prompt tokens are there with 0.
  const std::unordered_map<int32_t, int>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, int> counts_;
};

// Penalties and biases, in place.
void apply_penalties(std::span<float> logits, const SamplingOptions& options, const TokenHistory& history);
bool has_penalties(const SamplingOptions& options);

// Log-probabilities of the model's own distribution: of `token`, and of the `top` most likely ones.
GeneratedToken with_logprobs(std::span<const float> logits, int32_t token, int top);

}  // namespace hadal
