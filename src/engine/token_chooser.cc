#include "engine/token_chooser.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace hadal {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

TokenChooser::TokenChooser(const Request& request, int sample, int32_t eos, int64_t context)
    : request_(request),
      sampling_(request.sampling),
      eos_(eos),
      context_(context),
      prompt_(static_cast<int64_t>(request.prompt.size())),
      penalties_(has_penalties(request.sampling)) {
  sampling_.seed += static_cast<uint64_t>(sample);
  if (penalties_) history_ = TokenHistory(request.prompt);
  if (request.constraint) constraint_ = request.constraint->clone();
}

TokenChooser::TokenChooser(const TokenChooser& o)
    : request_(o.request_),
      sampling_(o.sampling_),
      eos_(o.eos_),
      context_(o.context_),
      prompt_(o.prompt_),
      generated_(o.generated_),
      penalties_(o.penalties_),
      history_(o.history_),
      constraint_(o.constraint_ ? o.constraint_->clone() : nullptr) {}

int32_t TokenChooser::choose(std::span<const float> logits) const {
  const bool hold = generated_ < request_.min_tokens;
  if (!hold && !penalties_ && !constraint_) return sample(logits, sampling_, position());
  std::vector<float> changed(logits.begin(), logits.end());
  if (penalties_) apply_penalties(changed, sampling_, history_);
  if (constraint_) {
    std::vector<uint64_t> allowed((changed.size() + 63) / 64);
    constraint_->allowed(allowed);
    for (size_t t = 0; t < changed.size(); ++t)
      if ((allowed[t / 64] >> (t % 64) & 1) == 0) changed[t] = kNever;
    if (std::all_of(changed.begin(), changed.end(), [](float v) { return v == kNever; }))
      fail(ErrorKind::internal, "the constraint allows no token after {} generated ones", generated_);
  }
  if (hold) {
    std::vector<float> held = changed;
    if (!request_.ignore_eos) held[static_cast<size_t>(eos_)] = kNever;
    for (const int32_t t : request_.stop_tokens) held[static_cast<size_t>(t)] = kNever;
    // A text that is complete cannot go on for the sake of min_tokens.
    if (std::any_of(held.begin(), held.end(), [](float v) { return v != kNever; })) changed = std::move(held);
  }
  return sample(changed, sampling_, position());
}

bool TokenChooser::plain(int64_t rows) const {
  return rows > 0 && !penalties_ && !constraint_ && generated_ >= request_.min_tokens && request_.logprobs < 0;
}

void TokenChooser::push(int32_t token) {
  if (constraint_ && !constraint_->accept(token))
    fail(ErrorKind::internal, "the constraint forbids token {} after {} generated ones, and had allowed it", token,
         generated_);
  if (penalties_) history_.push(token);
  ++generated_;
}

bool TokenChooser::allows(int32_t token) const { return !constraint_ || constraint_->clone()->accept(token); }

bool TokenChooser::full() const { return generated_ >= request_.max_tokens || position() >= context_; }

bool TokenChooser::ends(int32_t token) const {
  if (token == eos_ && !request_.ignore_eos) return true;
  return std::find(request_.stop_tokens.begin(), request_.stop_tokens.end(), token) != request_.stop_tokens.end();
}

}  // namespace hadal
