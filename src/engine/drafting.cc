#include "engine/drafting.h"

#include <algorithm>

namespace hadal {

void draft(deepseek_v41::Model& model, std::span<const DraftOrder> orders) {
  if (orders.empty()) return;
  std::vector<RequestState*> states;
  std::vector<int32_t> anchors;
  for (const DraftOrder& order : orders) {
    states.push_back(order.state);
    anchors.push_back(order.pending->front());
  }
  Context& context = model.context();
  const deepseek_v41::Drafts drafts = model.draft(states, anchors);
  std::vector<float> logits(static_cast<size_t>(model.config().vocab_size));
  for (size_t s = 0; s < orders.size(); ++s) {
    const DraftOrder& order = orders[s];
    TokenChooser ahead = *order.chooser;
    double confidence = 1;
    for (int i = 0; i < std::min(order.most, drafts.block); ++i) {
      const auto row = model.draft_logits(drafts, static_cast<int>(s) * drafts.block + i, order.pending->back());
      if (order.confidence > 0) {
        float probability = 0;
        context.download(&probability, row.probability.data, sizeof probability);
        confidence *= probability;
        if (confidence < order.confidence) break;
      }
      context.download(logits.data(), row.logits.data, logits.size() * sizeof(float));
      try {
        const int32_t token = ahead.choose(logits);
        if (ahead.ends(token)) break;
        ahead.push(token);
        order.pending->push_back(token);
      } catch (const std::exception&) {
        break;  // if it is not the draft's fault, the row that counts will find it
      }
    }
  }
}

void verify(TokenChooser& chooser, std::span<const int32_t> proposed, std::span<const float> logits, size_t vocab,
            Verified& out) {
  for (size_t i = 0; (i + 1) * vocab <= logits.size(); ++i) {
    const std::span<const float> row = logits.subspan(i * vocab, vocab);
    const int32_t token = chooser.choose(row);
    ++out.rows;
    out.stop = chooser.ends(token);
    if (out.stop) return;
    chooser.push(token);
    const int top = chooser.request().logprobs;
    out.tokens.push_back(top >= 0 ? with_logprobs(row, token, top) : GeneratedToken{token, 0, {}});
    if (chooser.full() || i + 1 >= proposed.size() || proposed[i + 1] != token) return;
  }
}

}  // namespace hadal
