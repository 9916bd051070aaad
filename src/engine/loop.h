// The engine's thread and what it owns. One turn: take what arrived, end what is unwanted, admit, run one step; and while a
// device works on that step, take and admit what arrives meanwhile.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "checkpoint/checkpoint.h"
#include "engine/backend.h"
#include "engine/disk_cache.h"
#include "engine/draft_guard.h"
#include "engine/drafting.h"
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
  bool cancel(RequestId id, int sample);
  EngineStats stats() const;
  const MemoryPlan& memory_plan() const { return plan_; }
  std::string backend() const { return describe(parse_backend(options_.backend), *context_); }
  void clear_prefix_cache();

 private:
  using Requests = std::vector<std::shared_ptr<ActiveRequest>>;

  // ---- queue and admission (loop.cc)
  static EngineOptions checked(const EngineOptions& options);
  void check(const Request& request) const;
  void run();
  bool take_arrivals();     // false when the engine stops
  void enqueue_arrivals();  // with mutex_ held
  void end_unwanted();
  void admit(bool may_preempt);
  // What of the next step depends on nothing that this one computes: arrivals are looked up in the prefix cache and admitted.
  // While a device works on this step its requests must stay as they are, so none of them makes room.
  void plan_ahead();
  // False while the disk reads what the request can go on from.
  bool looked_up(ActiveRequest& r);
  void start(ActiveRequest& r);
  PrefixCache::Match find_prefix(const ActiveRequest& r);
  bool usable(const ActiveRequest& r, int64_t length, int64_t floor) const;
  void preempt(ActiveRequest& r);
  void wait_for_disk();
  void keep(Snapshot snapshot);  // in memory, and on disk
  // Removes the request and hands over its last event. By value: the caller's may be the list's own.
  void finish(std::shared_ptr<ActiveRequest> r, FinishReason reason, const std::string& error = {},
              std::vector<GeneratedToken> tokens = {});
  void emit(Submission& submission, const Event& event);
  void publish_counts();            // with mutex_ held
  void publish_memory();            // what does not change
  void count_step(double seconds);  // with mutex_ held; reads planned_

  // ---- one step (step.cc)
  struct Chosen : Verified {
    std::string error;  // the request cannot go on
  };
  void step();
  void propose(const PlannedRows& rows);
  // Tokens of every segment, of which so many rows of logits are wanted.
  std::vector<Chosen> choose(const Tensor& logits, std::span<const int64_t> wanted);
  void keep_prompts(StepPlan& plan, const deepseek_v41::Step& result);
  void keep_branches();
  // Hands the tokens over; false when the request has finished.
  bool deliver(const std::shared_ptr<ActiveRequest>& r, Chosen chosen);
  bool guarded(const ActiveRequest& r) const { return r.request().speculate < 0 && options_.speculate < 0; }
  int most_drafts(const ActiveRequest& r) const;  // for the next step
  void make_drafts(const Requests& decoding);
  void observe_step(double seconds, const std::vector<int32_t>& accepted);

  const EngineOptions options_;
  const PrefillMode mode_;
  Checkpoint checkpoint_;
  std::unique_ptr<Context> context_;
  deepseek_v41::Model model_;
  const int draft_rows_;  // most drafts of a step
  MemoryPlan plan_;       // does not change once the engine runs
  CachePools pools_;
  PrefixCache cache_;
  Scheduler scheduler_;

  // The engine's thread only.
  std::vector<PlannedRows> planned_;  // of the step that runs
  std::vector<DraftGuard> guards_;    // [floor(log2(decoding requests))]
  int draft_choice_ = 0;              // of the guard, for the drafts of the next step
  double model_seconds_ = 0;          // of the step that runs: the model's own part, drafting included
  double draft_seconds_ = 0;          // that they took
  double sample_seconds_ = 0;         // of the step that runs: the choice of tokens

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  Requests arrivals_;
  std::unordered_map<RequestId, std::shared_ptr<Submission>> known_;
  EngineStats stats_;
  RequestId last_id_ = 0;
  bool stopping_ = false;
  bool clear_cache_ = false;

  std::unique_ptr<DiskCache> disk_;  // null: none. Ends before what its thread wakes
  std::thread thread_;
};

}  // namespace hadal
