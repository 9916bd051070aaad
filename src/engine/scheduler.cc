#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace hadal {

Scheduler::Scheduler(CachePools& pools, int64_t context_length, int step_tokens)
    : pools_(pools), context_length_(context_length), step_tokens_(step_tokens), total_pages_(pools.free_pages()) {}

int64_t Scheduler::pages_needed(const Request& request, int draft_rows) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t tokens = std::min(prompt + request.max_tokens, context_length_) + draft_rows;
  const int64_t page_tokens = pools_.layout().page_tokens;
  const int64_t pages = (tokens + page_tokens - 1) / page_tokens;
  if (pages > total_pages_)
    fail(ErrorKind::out_of_memory,
         "a prompt of {} tokens and up to {} new ones need {} cache pages of {} tokens, there are {}; ask for fewer tokens or "
         "give the engine more cache",
         prompt, request.max_tokens, pages, page_tokens, total_pages_);
  return pages;
}

void Scheduler::admit(std::list<std::shared_ptr<ActiveRequest>>& waiting,
                      std::list<std::shared_ptr<ActiveRequest>>& running) {
  while (!waiting.empty() && pools_.free_slots() > 0) {
    const auto first = std::max_element(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) {
      return a->request.priority < b->request.priority;  // the first of equals is kept
    });
    ActiveRequest& r = **first;
    if (r.reserved_pages > free_pages()) return;  // smaller ones behind it wait too, or it would starve
    reserved_pages_ += r.reserved_pages;
    r.state = std::make_unique<RequestState>(pools_);
    r.usage.queue_seconds = std::chrono::duration<double>(Clock::now() - r.submitted).count();
    // Kept by priority: plan() serves prompts in this order.
    const auto place = std::find_if(running.begin(), running.end(),
                                    [&](const auto& other) { return other->request.priority < r.request.priority; });
    running.splice(place, waiting, first);
  }
}

void Scheduler::release(ActiveRequest& request) {
  if (!request.state) return;
  request.state.reset();
  reserved_pages_ -= request.reserved_pages;
}

std::vector<PlannedRows> Scheduler::plan(const std::list<std::shared_ptr<ActiveRequest>>& running) const {
  std::vector<PlannedRows> rows;
  int64_t left = step_tokens_;
  for (const auto& r : running) {
    if (!r->decoding()) continue;
    rows.push_back({r.get(), static_cast<int64_t>(r->pending.size()), true});
    left -= rows.back().count;
  }
  bool first = true;
  for (const auto& r : running) {
    if (r->decoding()) continue;
    const int64_t count = std::min(r->prompt_size() - r->prefilled, std::max<int64_t>(left, first ? 1 : 0));
    first = false;
    if (count <= 0) break;
    rows.push_back({r.get(), count, false});
    left -= count;
  }
  return rows;
}

}  // namespace hadal
