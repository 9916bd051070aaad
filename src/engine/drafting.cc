#include "engine/drafting.h"

#include <algorithm>
#include <list>

namespace hadal {
namespace {

// A request whose drafts go on.
struct Ahead {
  Ahead(const DraftOrder& ordered, int row) : order(ordered), first_row(row), chooser(*ordered.chooser) {}
  const DraftOrder& order;
  int first_row;  // of its block of drafts
  TokenChooser chooser;
  double confidence = 1;
};

}  // namespace

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
  const int vocab = model.config().vocab_size;
  std::list<Ahead> left;
  for (size_t s = 0; s < orders.size(); ++s) left.emplace_back(orders[s], static_cast<int>(s) * drafts.block);
  for (int i = 0; i < drafts.block; ++i) {
    left.remove_if([i](const Ahead& a) { return i >= a.order.most; });
    if (left.empty()) return;
    // All requests' drafts for this place, so that the host waits once for each place.
    const StepScratch scratch(context);
    const auto count = static_cast<int64_t>(left.size());
    const Tensor logits = context.tensor(count, vocab, DType::f32), probability = context.tensor(count, 1, DType::f32);
    std::vector<SampleRow> rows;
    int32_t k = 0;
    for (const Ahead& a : left) {
      model.draft_logits(drafts, a.first_row + i, a.order.pending->back(),
                         {deepseek_v41::row_of(logits, k), deepseek_v41::row_of(probability, k)});
      rows.push_back(a.chooser.sample_row(0));
      rows.back().logits_row = k++;
    }
    const std::vector<int32_t> tokens = model.sample(logits, rows);
    std::vector<float> probabilities(left.size());
    context.download(probabilities.data(), probability.data, probabilities.size() * sizeof(float));
    k = 0;
    left.remove_if([&](Ahead& a) {
      const int32_t row = k++;
      a.confidence *= probabilities[static_cast<size_t>(row)];
      if (a.order.confidence > 0 && a.confidence < a.order.confidence) return true;
      try {
        int32_t token = tokens[static_cast<size_t>(row)];
        if (token < 0 || !a.chooser.plain(1)) {
          std::vector<float> host(static_cast<size_t>(vocab));
          context.download(host.data(), logits.f32(row), host.size() * sizeof(float));
          token = a.chooser.choose(host);
        }
        if (a.chooser.ends(token)) return true;
        a.chooser.push(token);
        a.order.pending->push_back(token);
      } catch (const std::exception&) {
        return true;  // if it is not the draft's fault, the row that counts will find it
      }
      return false;
    });
  }
}

void verify(TokenChooser& chooser, std::span<const int32_t> proposed, std::span<const int32_t> sampled,
            std::span<const float> logits, size_t vocab, Verified& out) {
  const size_t rows = sampled.empty() ? logits.size() / vocab : sampled.size();
  for (size_t i = 0; i < rows; ++i) {
    const std::span<const float> row = sampled.empty() ? logits.subspan(i * vocab, vocab) : std::span<const float>();
    const int32_t token = sampled.empty() ? chooser.choose(row) : sampled[i];
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
