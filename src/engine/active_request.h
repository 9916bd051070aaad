// A request inside the engine.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/sampler.h"
#include "hadal/request.h"
#include "state/request_state.h"

namespace hadal {

using Clock = std::chrono::steady_clock;

struct ActiveRequest {
  RequestId id = 0;
  Request request;
  EventHandler handler;
  Clock::time_point submitted;
  std::atomic<bool> cancelled{false};

  // Once admitted:
  std::unique_ptr<RequestState> state;
  int64_t reserved_pages = 0;
  int64_t prefilled = 0;          // prompt tokens committed
  std::vector<int32_t> pending;   // decoding: the last sampled token, then drafts to verify
  TokenHistory history;
  int64_t generated = 0;
  Usage usage;

  int64_t prompt_size() const { return static_cast<int64_t>(request.prompt.size()); }
  bool decoding() const { return prefilled == prompt_size(); }
};

}  // namespace hadal
