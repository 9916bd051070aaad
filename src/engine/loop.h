// The engine's thread and what it owns. One turn: take what arrived, end what is unwanted, admit, run one step.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "checkpoint/checkpoint.h"
#include "engine/prefix_cache.h"
#include "engine/scheduler.h"
#include "hadal/engine.h"
#include "models/deepseek_v41/model.h"

namespace hadal {

class Engine::Loop {
 public:
  explicit Loop(const EngineOptions& options);
  ~Loop();

  const V41Config& config() const { return model_.config(); }
  RequestId submit(Request request, EventHandler handler);
  bool cancel(RequestId id);
  EngineStats stats() const;
  void clear_prefix_cache();

 private:
  using Requests = std::vector<std::shared_ptr<ActiveRequest>>;

  // ---- queue and admission (loop.cc)
  static const EngineOptions& checked(const EngineOptions& options);
  void check(const Request& request) const;
  int pages() const;
  void run();
  bool take_arrivals();  // false when the engine stops
  void end_unwanted();
  void admit();
  void start(ActiveRequest& r);
  void preempt(ActiveRequest& r);
  bool usable(const ActiveRequest& r, const Snapshot& snapshot) const;
  // Removes the request and hands over its last event.
  void finish(const std::shared_ptr<ActiveRequest>& r, FinishReason reason, const std::string& error = {},
              std::vector<GeneratedToken> tokens = {});
  void emit(Submission& submission, const Event& event);
  void publish_counts();  // with mutex_ held

  // ---- one step (step.cc)
  struct Chosen {
    std::vector<GeneratedToken> tokens;
    int32_t rows = 0;   // how many of the proposed rows were right, the one of the last token among them
    bool stop = false;  // the token after these ended the answer
    std::string error;  // the request cannot go on
  };
  void step();
  void propose(const PlannedRows& rows);
  Chosen choose(ActiveRequest& r, std::span<const int32_t> proposed, std::span<float> logits) const;
  void keep_prompts(StepPlan& plan, const deepseek_v41::Step& result);
  void keep_branches();
  // Hands the tokens over; false when the request has finished.
  bool deliver(const std::shared_ptr<ActiveRequest>& r, Chosen chosen);
  int most_drafts(const ActiveRequest& r) const;
  void draft(const Requests& decoding);

  const EngineOptions options_;
  const PrefillMode mode_;
  Checkpoint checkpoint_;
  std::unique_ptr<Context> context_;
  deepseek_v41::Model model_;
  CachePools pools_;
  PrefixCache cache_;
  Scheduler scheduler_;
  int draft_rows_ = 0;

  // The engine's thread only.
  std::vector<PlannedRows> planned_;  // of the step that runs

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  Requests arrivals_;
  std::unordered_map<RequestId, std::shared_ptr<Submission>> known_;
  EngineStats stats_;
  RequestId last_id_ = 0;
  bool stopping_ = false;
  bool clear_cache_ = false;

  std::thread thread_;
};

}  // namespace hadal
