// The engine: many requests at once over one model.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hadal/request.h"

namespace hadal {

struct EngineOptions {
  std::filesystem::path model;
  std::string backend = "cpu";     // cpu, cuda, reference
  std::string numerics = "bf16";   // bf16, fp32, official
  std::string prefill = "exact";   // full, exact, bounded
  int threads = 0;                 // CPU threads, 0: all
  int max_requests = 16;           // running at once; others wait
  int max_waiting = 1024;          // more are refused
  int64_t cache_tokens = 0;        // tokens of all running requests; 0: max_requests x 4096, less when memory is short
  int step_tokens = 512;           // rows of a step: decode rows first, then prompts in chunks
  int speculate = 0;               // most drafted tokens a step; -1: all that the draft module gives, as its confidence says
  double draft_confidence = 0.5;   // with -1: drafts are verified while the product of confidences stays above
};

struct EngineStats {
  int waiting = 0, running = 0;
  int64_t free_cache_tokens = 0, cache_tokens = 0;
  int64_t steps = 0, prompt_tokens = 0, generated_tokens = 0;
  std::vector<int64_t> drafted, accepted;  // by draft position
  double step_seconds = 0;                 // in the model and around it, all steps
  double model_seconds = 0;                // in the model alone
};

class Engine {
 public:
  // Loads the model and starts the engine's thread. Throws hadal::Error.
  explicit Engine(const EngineOptions& options);
  // Cancels what still runs and waits for the step in flight.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Thread-safe. Throws invalid_argument for a request that is wrong, out_of_memory for one that can never fit (with the
  // numbers), busy when the queue is full. Otherwise the handler gets events until one has finished = true.
  RequestId submit(Request request, EventHandler handler);

  // Thread-safe; false when the id is unknown or has finished. The handler still gets its last event.
  bool cancel(RequestId id);

  EngineStats stats() const;
  int64_t context_length() const;
  int vocab_size() const;
  int32_t eos_token() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace hadal
