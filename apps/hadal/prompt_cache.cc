#include "prompt_cache.h"

#include <algorithm>

#include "base/error.h"

namespace hadal {
namespace {

constexpr size_t kMarks = 16;

// A mark in the middle of a page makes the state go on in a copy of that page.
int64_t room(const deepseek_v41::Model& model, int64_t context) {
  return context + static_cast<int64_t>(kMarks + 1) * model.cache_layout().page_tokens;
}

}  // namespace

PromptCache::PromptCache(deepseek_v41::Model& model, int64_t context, SingleRequest::PromptOptions options)
    : context_(context),
      options_(std::move(options)),
      request_(model, room(model, context)),
      empty_(request_.state().snapshot()) {}

void PromptCache::go_back(int64_t longest) {
  while (!marks_.empty() && marks_.back().length() > longest) marks_.pop_back();
  if (request_.state().length() > longest) request_.state().restore(marks_.empty() ? empty_ : marks_.back());
}

PromptCache::Prompt PromptCache::prefill(std::span<const int32_t> ids,
                                         const std::function<void(int64_t done)>& progress) {
  HADAL_CHECK(!ids.empty() && static_cast<int64_t>(ids.size()) <= context_);
  const std::span<const int32_t> have = request_.state().tokens();
  const auto common = std::mismatch(have.begin(), have.end(), ids.begin(), ids.end()).second - ids.begin();
  // The logits of the last token are not kept, so that one is always computed.
  const auto last = static_cast<int64_t>(ids.size()) - 1;
  go_back(std::min<int64_t>(common, last));

  Prompt prompt;
  prompt.cached = length();
  prompt.computed = last + 1 - prompt.cached;
  SingleRequest::PromptOptions options = options_;
  options.progress = progress;
  try {
    if (length() < last) {
      options.logits = LogitsWanted::none;
      request_.prefill(ids.subspan(static_cast<size_t>(length()), static_cast<size_t>(last - length())), options);
    }
    if (marks_.empty() || marks_.back().length() < last) marks_.push_back(request_.state().snapshot());
    if (marks_.size() > kMarks) marks_.erase(marks_.begin());
    options.logits = LogitsWanted::last;
    options.progress = nullptr;
    prompt.logits = request_.prefill(ids.last(1), options);
  } catch (...) {
    // A prompt that was cut off has not run all rows that another continuation would need.
    request_.state().rollback();
    request_.state().restore(marks_.empty() ? empty_ : marks_.back());
    throw;
  }
  return prompt;
}

}  // namespace hadal
