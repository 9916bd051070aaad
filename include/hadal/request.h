// A request to the engine, and what comes back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hadal/constraint.h"

namespace hadal {

using RequestId = uint64_t;

// How the next token is chosen. The sample is the arg-max of logit / temperature + Gumbel noise over the tokens that the
// filters keep, and the noise is a function of (seed, position, token): a request's tokens do not depend on what else runs,
// and a draft is right exactly when it equals that sample.
struct SamplingOptions {
  double temperature = 1.0;  // 0 to 100; 0: the most likely token
  int top_k = 0;             // 0: off
  double top_p = 1.0;        // (0, 1]: smallest set of the most likely tokens that holds at least this probability
  double min_p = 0.0;        // [0, 1]: drops tokens below this share of the most likely one
  uint64_t seed = 0;

  // Applied to the logits before the filters, in this order. Earlier tokens are the prompt's and the generated ones for
  // repetition_penalty, the generated ones for the other two.
  double repetition_penalty = 1.0;       // (0, 10]: divides positive logits of earlier tokens, multiplies negative ones
  double presence_penalty = 0.0;         // [-2, 2]: subtracted from tokens that were generated
  double frequency_penalty = 0.0;        // [-2, 2]: subtracted once for each time
  std::map<int32_t, double> logit_bias;  // token -> [-100, 100], added
};

struct Request {
  std::vector<int32_t> prompt;
  SamplingOptions sampling;
  int n = 1;  // samples of the same prompt, which share its pages; sample i draws with seed + i
  std::shared_ptr<const Constraint> constraint;  // its state before the first generated token; null: any token
  int64_t max_tokens = 256;
  int64_t min_tokens = 0;            // end-of-sequence and stop tokens cannot be chosen before
  std::vector<int32_t> stop_tokens;  // beside the model's end-of-sequence token
  bool ignore_eos = false;
  int logprobs = -1;            // -1: none; N: of the chosen token and the N most likely ones
  int priority = 0;             // higher runs first
  double deadline_seconds = 0;  // 0: none; from submission
  int speculate = -1;           // most drafted tokens a step; -1: as the engine is set, 0: none
};

enum class FinishReason : uint8_t {
  stop,    // end of sequence or a stop token
  length,  // max_tokens or the end of the context
  cancelled,
  deadline,
  error,  // Event::error says what
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

struct GeneratedToken {
  int32_t token = 0;
  float logprob = 0;                      // of the model's own distribution, when logprobs >= 0
  std::vector<TokenLogprob> most_likely;  // Request::logprobs of them
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt, taken from the prefix cache
  int64_t recomputed_tokens = 0;  // of the cached prefix, run again from the nearest snapshot
  int64_t disk_tokens = 0;        // of the cached prefix, read from the disk
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;  // proposed to verification
  int64_t accepted_drafts = 0;
  double queue_seconds = 0;
  double first_token_seconds = 0;  // from submission
  double total_seconds = 0;
};

struct Event {
  RequestId request = 0;
  int sample = 0;                      // 0 to Request::n - 1
  std::vector<GeneratedToken> tokens;  // in order; several when drafts were accepted
  bool finished = false;               // the last event of this sample; each sample has one
  FinishReason reason = FinishReason::stop;
  std::string error;
  Usage usage;  // when finished
};

// Called from the engine's thread, in order for each request. It must not block.
using EventHandler = std::function<void(const Event&)>;

}  // namespace hadal
