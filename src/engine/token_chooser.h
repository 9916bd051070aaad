// What the choice of a request's next token depends on besides the logits: penalties' counts, the grammar's state, how many
// tokens there are. Copied to look ahead along drafts.
#pragma once

#include <memory>
#include <span>

#include "engine/sampler.h"

namespace hadal {

class TokenChooser {
 public:
  // Of sample number `sample` (include/hadal/request.h, Request::n), in a context of so many tokens. `request` must outlive it.
  TokenChooser(const Request& request, int sample, int32_t eos, int64_t context);
  TokenChooser(const TokenChooser& other);
  TokenChooser& operator=(const TokenChooser&) = delete;

  // Throws invalid_data when a logit is NaN, internal when the grammar allows nothing.
  int32_t choose(std::span<const float> logits) const;
  // Whether the next `rows` choices depend on nothing but the logits and what sample_row says, and their logits are not
  // asked for: then they can be made where the logits lie.
  bool plain(int64_t rows) const;
  // Of the token that comes `ahead` tokens after the next one.
  SampleRow sample_row(int64_t ahead) const { return hadal::sample_row(sampling_, position() + ahead); }
  // Moves past a token; throws internal when the grammar forbids it.
  void push(int32_t token);
  // Whether push would succeed.
  bool allows(int32_t token) const;

  bool ends(int32_t token) const;  // end of sequence, or a stop token
  bool full() const;               // max_tokens or the end of the context is reached
  const Request& request() const { return request_; }
  int64_t generated() const { return generated_; }
  int64_t position() const { return prompt_ + generated_; }  // that the next token will take

 private:
  const Request& request_;
  SamplingOptions sampling_;
  int32_t eos_;
  int64_t context_;
  int64_t prompt_;
  int64_t generated_ = 0;
  bool penalties_;
  TokenHistory history_;  // kept when there are penalties
  std::unique_ptr<Constraint> constraint_;
};

}  // namespace hadal
