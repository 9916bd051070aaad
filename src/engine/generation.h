// The answer to one prompt, token by token or with drafts, for the tools that run a request by themselves.
#pragma once

#include "engine/draft_guard.h"
#include "engine/drafting.h"
#include "engine/single_request.h"

namespace hadal {

class Generation {
 public:
  // Behind a prompt whose last row gave these logits. `context` is the room of `single`; `request` (its prompt, sampling,
  // max_tokens, ignore_eos, speculate) must outlive this.
  Generation(SingleRequest& single, const Request& request, int64_t context, std::vector<float> logits);

  // The next tokens, several when drafts were right; none when the answer is over.
  std::vector<int32_t> next();
  bool stopped() const { return stopped_; }  // by end of sequence

  struct Stats {
    int64_t steps = 0;                       // that decoded
    std::vector<int64_t> drafted, accepted;  // by draft position
  };
  const Stats& stats() const { return stats_; }

  // Drafts that the model can give in a step.
  static int most_drafts(const deepseek_v41::Model& model);

 private:
  SingleRequest& single_;
  const Request& request_;
  TokenChooser chooser_;
  int64_t context_;
  std::vector<float> logits_;     // before the first token
  std::vector<int32_t> pending_;  // the last token, not in the state yet
  DraftGuard guard_;
  Stats stats_;
  bool stopped_ = false;
};

// "off", "auto" or a number of tokens, as Request::speculate; throws invalid_argument.
int parse_speculate(std::string_view text, const deepseek_v41::Model& model);
// The same without a model at hand: the engine checks the number.
int parse_speculate(std::string_view text);

}  // namespace hadal
