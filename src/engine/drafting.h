// Drafts of the model's own module, sampled as the tokens themselves are.      spec 5
#pragma once

#include <span>
#include <vector>

#include "engine/token_chooser.h"
#include "models/deepseek_v41/model.h"

namespace hadal {

struct DraftOrder {
  RequestState* state = nullptr;
  const TokenChooser* chooser = nullptr;
  int most = 0;                             // drafts, at most the model's block
  double confidence = 0;                    // stop where the product of the module's confidences falls below; 0: never
  std::vector<int32_t>* pending = nullptr;  // holds the token at position length(); drafts are appended
};

// One draft step for all of them. A draft that would end the answer is left out: the step gives that token itself.
void draft(deepseek_v41::Model& model, std::span<const DraftOrder> orders);

// Takes the rows' tokens one after the other, from `sampled` or, when that is empty, chosen from logits [rows, vocab], as long as the drafts are right: proposed[0] is known,
// proposed[1..] are drafts, and what comes after row i is proposed[i + 1] or a rejection. A prompt's last row has no drafts.
struct Verified {                      // what there is when something throws is right
  std::vector<GeneratedToken> tokens;  // log-probabilities when the request asks for them
  int32_t rows = 0;                    // rows that are right, up to the one that the last token came from
  bool stop = false;                   // then came a token that ends the answer
};
void verify(TokenChooser& chooser, std::span<const int32_t> proposed, std::span<const int32_t> sampled,
            std::span<const float> logits, size_t vocab, Verified& out);

}  // namespace hadal
