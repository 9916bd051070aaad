#include "engine/single_request.h"

#include <algorithm>

#include "base/error.h"

namespace hadal {

void check_ids(std::span<const int32_t> ids, int vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab_size)
      fail(ErrorKind::invalid_argument, "token id {} at position {} is out of range, the vocabulary has ids 0 to {}",
           ids[i], i, vocab_size - 1);
}

SingleRequest::SingleRequest(deepseek_v41::Model& model, int64_t capacity) : model_(model), capacity_(capacity) {
  const CacheLayout layout = model.cache_layout();
  // One page more than the tokens need: drafts stand past the end.
  const auto pages = static_cast<int>((capacity + layout.page_tokens - 1) / layout.page_tokens) + 1;
  pools_ = std::make_unique<CachePools>(model.context(), layout, 1, pages);
  state_ = std::make_unique<RequestState>(*pools_);
}

std::vector<float> SingleRequest::prefill(std::span<const int32_t> ids, const PromptOptions& options) {
  if (ids.empty()) fail(ErrorKind::invalid_argument, "the prompt is empty; give at least one token id");
  if (options.chunk < 1)
    fail(ErrorKind::invalid_argument, "the chunk is {} tokens, expected at least 1", options.chunk);
  check_ids(ids, model_.config().vocab_size);
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t end = state_->length() + n;
  if (end > model_.config().max_position_embeddings)
    fail(ErrorKind::invalid_argument, "the prompt ends at {} tokens, the model's context is {}", end,
         model_.config().max_position_embeddings);
  if (end > capacity_)
    fail(ErrorKind::invalid_argument, "the prompt ends at {} tokens, there is room for {}", end, capacity_);
  const int window = model_.config().sliding_window;
  const int bounded = options.bounded_rows == 0 ? window : options.bounded_rows;
  if (bounded < window)
    fail(ErrorKind::invalid_argument, "bounded prefill of {} rows is less than the window of {}", bounded, window);
  state_->begin_prompt(end, options.logits == LogitsWanted::all ? PrefillMode::full : options.mode, bounded);

  std::vector<float> logits;
  for (int64_t done = 0; done < n; done += options.chunk) {
    const auto piece =
        ids.subspan(static_cast<size_t>(done), static_cast<size_t>(std::min<int64_t>(options.chunk, n - done)));
    const bool last = done + static_cast<int64_t>(piece.size()) == n;
    const LogitsWanted wanted = options.logits == LogitsWanted::last && !last ? LogitsWanted::none : options.logits;
    const std::vector<float> rows = run(piece, wanted, options.observe);
    logits.insert(logits.end(), rows.begin(), rows.end());
    if (options.progress) options.progress(done + static_cast<int64_t>(piece.size()));
  }
  return logits;
}

std::vector<float> SingleRequest::run(std::span<const int32_t> ids, LogitsWanted wanted,
                                      const deepseek_v41::Observer& observe, const Accept& accept) {
  Context& context = model_.context();
  context.reset_step();
  state_->propose(ids);
  const SegmentRequest request{state_.get(), wanted};
  StepPlan plan(context, model_.step_shape(), {&request, 1});
  const deepseek_v41::Step step = model_.forward(plan, observe);
  std::vector<float> logits;
  if (step.logits) {
    logits.resize(static_cast<size_t>(step.logits.rows * step.logits.cols));
    context.download(logits.data(), step.logits.data, logits.size() * sizeof(float));
  }
  const int32_t accepted = accept ? accept(logits) : static_cast<int32_t>(ids.size());
  model_.commit(plan, step, {&accepted, 1});
  return logits;
}

}  // namespace hadal
