// Who runs, and which rows the next step runs: decode rows first, then prompts in chunks.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "engine/active_request.h"

namespace hadal {

struct PlannedRows {
  std::shared_ptr<ActiveRequest> request;
  int64_t count = 0;
  bool decode = false;
};

class Scheduler {
 public:
  using List = std::list<std::shared_ptr<ActiveRequest>>;

  Scheduler(CachePools& pools, int64_t context_length, int step_tokens);

  // Pages that a request may come to need; throws out_of_memory with the numbers when the pools can never hold them.
  int64_t pages_needed(const Request& request, int draft_rows) const;

  void add(std::shared_ptr<ActiveRequest> request);  // to those that wait
  // Whose turn it is: the highest priority, then first come. Null when nobody waits who could start. Others wait behind it
  // even when they would fit, or it would starve.
  ActiveRequest* next() const;
  bool fits(const ActiveRequest& request) const;
  // The running request that gives way to this one: of the lowest priority, and the last to come of those. Null when all of
  // lower priority together do not make enough room.
  ActiveRequest* victim(const ActiveRequest& request) const;

  // Reserves the pages that the request may come to need, so it is never short of memory while it runs.
  void start(ActiveRequest& request);
  void suspend(ActiveRequest& request);  // gives its memory back; it waits again, in its old place
  void remove(ActiveRequest& request);   // from where it is, with all it holds

  // Every decoding request has its rows in each step. Prompts share what is left of the budget, higher priorities first and
  // equals alike, but nobody gets less than a quarter of it while a first in line has more to run; the first gets one row at
  // least, so that neither starves.
  std::vector<PlannedRows> plan() const;

  const List& waiting() const { return waiting_; }
  const List& running() const { return running_; }
  int64_t total_pages() const { return total_pages_; }
  int64_t free_pages() const { return total_pages_ - reserved_pages_; }

 private:
  static bool before(const ActiveRequest& a, const ActiveRequest& b);  // came earlier
  static List::iterator place(List& list, const ActiveRequest& request);

  CachePools& pools_;
  int64_t context_length_;
  int step_tokens_;
  int64_t total_pages_;
  int64_t reserved_pages_ = 0;
  List waiting_;  // in the order of arrival
  List running_;  // by priority, then in the order of arrival: plan() serves prompts in this order
};

}  // namespace hadal
