#include "state/request_state.h"

#include <algorithm>

#include "base/error.h"

namespace hadal {

std::string_view to_string(PrefillMode mode) {
  switch (mode) {
    case PrefillMode::full: return "full";
    case PrefillMode::exact: return "exact";
    case PrefillMode::bounded: return "bounded";
  }
  return "?";
}

PrefillMode parse_prefill_mode(std::string_view name) {
  for (const PrefillMode m : {PrefillMode::full, PrefillMode::exact, PrefillMode::bounded})
    if (name == to_string(m)) return m;
  fail(ErrorKind::invalid_argument, "unknown prefill mode '{}', expected full, exact or bounded", name);
}

Snapshot::Pages::~Pages() {
  for (const int32_t page : list) pools->release_page(page);
}

Snapshot::Snapshot(CachePools& pools, Stored stored, const Snapshot* shared)
    : tokens_(std::move(stored.tokens)),
      pages_(new Pages{&pools, {}}),
      slot_(std::make_shared<std::vector<uint8_t>>(std::move(stored.slot))),
      prompt_end_(stored.prompt_end),
      floor_(stored.floor),
      mode_(stored.mode) {
  const int64_t page_tokens = pools.layout().page_tokens;
  const auto pages = static_cast<int64_t>(stored.pages.size());
  HADAL_CHECK(pages == (length() + page_tokens - 1) / page_tokens && slot_->size() == pools.slot_bytes());
  int64_t common = 0;  // tokens
  if (shared != nullptr) {
    HADAL_CHECK(shared->pages_->pools == &pools);
    common = std::mismatch(tokens_.begin(), tokens_.end(), shared->tokens_.begin(), shared->tokens_.end()).first -
             tokens_.begin();
  }
  for (int64_t p = 0; p < pages; ++p) {
    if ((p + 1) * page_tokens <= common) {
      pages_->list.push_back(shared->pages_->list[static_cast<size_t>(p)]);
      pools.retain_page(pages_->list.back());
      continue;
    }
    pages_->list.push_back(pools.acquire_page());
    pools.load_page(pages_->list.back(), std::min(page_tokens, length() - p * page_tokens),
                    stored.pages[static_cast<size_t>(p)]);
  }
}

RequestState::RequestState(CachePools& pools) : pools_(pools), slot_(pools.acquire_slot()) {}

RequestState::~RequestState() {
  drop_pages(0);
  pools_.release_slot(slot_);
}

void RequestState::begin_prompt(int64_t prompt_end, PrefillMode mode, int bounded_rows) {
  HADAL_CHECK(proposed() == 0 && prompt_end > committed_);
  HADAL_CHECK(mode != PrefillMode::bounded || bounded_rows >= pools_.layout().window);
  prompt_end_ = prompt_end;
  mode_ = mode;
  // Only a cut that skips rows of this prompt separates the windows from what was before.
  if (mode == PrefillMode::bounded && prompt_end - bounded_rows > committed_) floor_ = prompt_end - bounded_rows;
}

bool RequestState::last_page_is_shared() const {
  return committed_ % pools_.layout().page_tokens != 0 && pools_.shared(pages_.back());
}

int64_t RequestState::pages_to_propose(int64_t n) const {
  if (n == 0) return 0;
  const int64_t page_tokens = pools_.layout().page_tokens;
  const int64_t need = (committed_ + n + page_tokens - 1) / page_tokens;
  return need - static_cast<int64_t>(pages_.size()) + (last_page_is_shared() ? 1 : 0);
}

void RequestState::propose(std::span<const int32_t> tokens) {
  HADAL_CHECK(proposed() == 0);
  const int64_t page_tokens = pools_.layout().page_tokens;
  const int64_t end = committed_ + static_cast<int64_t>(tokens.size());
  const auto need = static_cast<size_t>((end + page_tokens - 1) / page_tokens);
  const int64_t fresh = pages_to_propose(static_cast<int64_t>(tokens.size()));
  if (fresh > pools_.free_pages())
    fail(ErrorKind::out_of_memory, "{} more tokens need {} cache pages of {} tokens, {} are free", tokens.size(), fresh,
         page_tokens, pools_.free_pages());
  // A last page that others hold is copied before this request writes into it.
  if (!tokens.empty() && last_page_is_shared()) {
    const int page = pools_.acquire_page();
    pools_.copy_page(page, pages_.back());
    pools_.release_page(pages_.back());
    pages_.back() = page;
  }
  while (pages_.size() < need) pages_.push_back(pools_.acquire_page());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void RequestState::commit(int64_t n) {
  HADAL_CHECK(n >= 0 && n <= proposed());
  committed_ += n;
  tokens_.resize(static_cast<size_t>(committed_));
  drop_pages(committed_);
}

void RequestState::drop_pages(int64_t tokens) {
  const int64_t page_tokens = pools_.layout().page_tokens;
  const auto keep = static_cast<size_t>((tokens + page_tokens - 1) / page_tokens);
  while (pages_.size() > keep) {
    pools_.release_page(pages_.back());
    pages_.pop_back();
  }
}

Snapshot RequestState::snapshot() const {
  HADAL_CHECK(proposed() == 0);
  return snapshot(committed_);
}

Snapshot RequestState::snapshot(int64_t length) const {
  HADAL_CHECK(length >= committed_ && length <= static_cast<int64_t>(tokens_.size()));
  const int64_t page_tokens = pools_.layout().page_tokens;
  Snapshot s;
  s.tokens_.assign(tokens_.begin(), tokens_.begin() + length);
  std::vector<int32_t> pages(pages_.begin(), pages_.begin() + (length + page_tokens - 1) / page_tokens);
  for (const int32_t page : pages) pools_.retain_page(page);
  s.pages_ = std::make_shared<Snapshot::Pages>(&pools_, std::move(pages));
  s.slot_ = std::make_shared<std::vector<uint8_t>>(pools_.slot_bytes());
  pools_.save_slot(slot_, s.slot_->data());
  s.prompt_end_ = prompt_end_;
  s.floor_ = floor_;
  s.mode_ = mode_;
  return s;
}

void RequestState::restore(const Snapshot& saved) {
  HADAL_CHECK(saved.pages_ != nullptr && saved.pages_->pools == &pools_);
  for (const int32_t page : saved.pages_->list) pools_.retain_page(page);
  drop_pages(0);
  pages_ = saved.pages_->list;
  tokens_ = saved.tokens_;
  committed_ = saved.length();
  pools_.load_slot(slot_, saved.slot_->data());
  prompt_end_ = saved.prompt_end_;
  floor_ = saved.floor_;
  mode_ = saved.mode_;
}

}  // namespace hadal
