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
         "a prompt of {} tokens and up to {} new ones need {} cache pages of {} tokens, there are {}; ask for fewer "
         "tokens or "
         "give the engine more cache",
         prompt, request.max_tokens, pages, page_tokens, total_pages_);
  return pages;
}

bool Scheduler::before(const ActiveRequest& a, const ActiveRequest& b) {
  return a.submission->id != b.submission->id ? a.submission->id < b.submission->id : a.sample < b.sample;
}

void Scheduler::add(std::shared_ptr<ActiveRequest> request) {
  const auto after =
      std::find_if(waiting_.rbegin(), waiting_.rend(), [&](const auto& other) { return before(*other, *request); });
  waiting_.insert(after.base(), std::move(request));
}

ActiveRequest* Scheduler::next() const {
  ActiveRequest* first = nullptr;
  for (const auto& r : waiting_) {
    if (!r->runs_prompt() && !r->submission->prompt_ran) continue;
    if (first == nullptr || r->request().priority > first->request().priority) first = r.get();
  }
  return first;
}

bool Scheduler::fits(const ActiveRequest& request) const {
  return pools_.free_slots() > 0 && request.reserved_pages <= free_pages();
}

ActiveRequest* Scheduler::victim(const ActiveRequest& request) const {
  int slots = pools_.free_slots();
  int64_t pages = free_pages();
  ActiveRequest* last = nullptr;
  for (const auto& r : running_) {
    if (r->request().priority >= request.request().priority) continue;
    ++slots;
    pages += r->reserved_pages;
    last = r.get();  // the list goes by priority, then by arrival
  }
  return slots > 0 && pages >= request.reserved_pages ? last : nullptr;
}

Scheduler::List::iterator Scheduler::place(List& list, const ActiveRequest& request) {
  return std::find_if(list.begin(), list.end(), [&](const auto& other) { return other.get() == &request; });
}

void Scheduler::start(ActiveRequest& request) {
  HADAL_CHECK(fits(request));
  request.state = std::make_unique<RequestState>(pools_);
  reserved_pages_ += request.reserved_pages;
  const auto behind = std::find_if(running_.begin(), running_.end(), [&](const auto& other) {
    const int mine = request.request().priority, its = other->request().priority;
    return its != mine ? its < mine : before(request, *other);
  });
  running_.splice(behind, waiting_, place(waiting_, request));
}

void Scheduler::suspend(ActiveRequest& request) {
  const auto at = place(running_, request);
  std::shared_ptr<ActiveRequest> kept = *at;
  running_.erase(at);
  request.state.reset();
  reserved_pages_ -= request.reserved_pages;
  add(std::move(kept));
}

void Scheduler::remove(ActiveRequest& request) {
  if (!request.state) {
    waiting_.erase(place(waiting_, request));
    return;
  }
  request.state.reset();
  reserved_pages_ -= request.reserved_pages;
  running_.erase(place(running_, request));
}

std::vector<PlannedRows> Scheduler::plan() const {
  std::vector<PlannedRows> rows;
  int64_t left = step_tokens_;
  for (const auto& r : running_) {
    if (!r->decoding()) continue;
    rows.push_back({r, static_cast<int64_t>(r->pending.size()), true});
    left -= rows.back().count;
  }
  for (auto r = running_.begin(); r != running_.end();) {
    const int priority = (*r)->request().priority;
    const auto end = std::find_if(r, running_.end(), [&](const auto& o) { return o->request().priority != priority; });
    const auto prompts = std::count_if(r, end, [](const auto& o) { return !o->decoding(); });
    const int64_t share = prompts == 0 ? 0 : std::max<int64_t>({left / prompts, step_tokens_ / 4, 1});
    // What some leave of their share goes to the first that has use for it.
    std::vector<PlannedRows> chunks;
    for (; r != end; ++r) {
      if ((*r)->decoding()) continue;
      const bool first = chunks.empty() && (rows.empty() || rows.back().decode);
      const int64_t wanted = (*r)->chunk_end() - (*r)->state->length();
      const int64_t count = std::min({wanted, share, std::max<int64_t>(left, first ? 1 : 0)});
      if (count <= 0) continue;
      chunks.push_back({*r, count, false});
      left -= count;
    }
    for (PlannedRows& chunk : chunks) {
      const int64_t wanted = chunk.request->chunk_end() - chunk.request->state->length();
      const int64_t more = std::clamp<int64_t>(left, 0, wanted - chunk.count);
      chunk.count += more;
      left -= more;
    }
    rows.insert(rows.end(), chunks.begin(), chunks.end());
  }
  return rows;
}

}  // namespace hadal
