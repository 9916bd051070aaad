// Which rows the next step runs: decode rows first, then prompts in chunks.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "engine/active_request.h"

namespace hadal {

struct PlannedRows {
  ActiveRequest* request = nullptr;
  int64_t count = 0;
  bool decode = false;
};

class Scheduler {
 public:
  Scheduler(CachePools& pools, int64_t context_length, int step_tokens);

  // Pages that a request may come to need; throws out_of_memory with the numbers when the pools can never hold them.
  int64_t pages_needed(const Request& request, int draft_rows) const;

  // Waiting requests go by priority, then by arrival; equals do not overtake. Reserves the pages that a request may come to
  // need, so a running request is never short of memory.
  void admit(std::list<std::shared_ptr<ActiveRequest>>& waiting, std::list<std::shared_ptr<ActiveRequest>>& running);
  void release(ActiveRequest& request);

  // Every decoding request has its rows in each step; prompts share what is left of the budget, in the order of `running`,
  // at least one row for the first of them, so that neither starves.
  std::vector<PlannedRows> plan(const std::list<std::shared_ptr<ActiveRequest>>& running) const;

  int64_t total_pages() const { return total_pages_; }
  int64_t free_pages() const { return total_pages_ - reserved_pages_; }

 private:
  CachePools& pools_;
  int64_t context_length_;
  int step_tokens_;
  int64_t total_pages_;
  int64_t reserved_pages_ = 0;
};

}  // namespace hadal
