// Steps of a whole model, timed: what `hadal bench prefill` and `hadal bench decode` share. The model is a checkpoint, or
// one rank of a configuration with random weights; caches hold random rows, as if a context had been read.
#pragma once

#include <CLI/CLI.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/json.h"
#include "engine/backend.h"
#include "engine/operator_watch.h"
#include "models/deepseek_v41/cost.h"
#include "models/deepseek_v41/model.h"

namespace hadal {

struct StepBenchOptions {
  std::string model, config, rank, routing, isa;
  std::string device, numerics = "bf16", cuda_graphs = "on", engram_device = "auto";
  int threads = 0;
  int layers = 0;
  int64_t engram_rows = 0;
  uint64_t seed = 1;
  int steps = 10;
  int warm_up = 3;
  bool reload = false;
  bool json = false;

  void add_to(CLI::App& command);
};

// What a step did, in seconds.
struct StepTimes {
  std::vector<double> steps;  // each from its tokens on the host to the committed state
  // Of a CPU, whose memory's rate drifts: for each step the share of its time that the floor takes by a roof measured just
  // before it.
  std::vector<double> shares;
  // Of a CPU: its time for each step, a thread; on a machine that others use, less than `steps`.
  std::vector<double> cpu;
  int64_t tokens = 0;  // of one step
  struct StageTime {
    double seconds = 0;  // median over the profiled steps
    deepseek_v41::StageCost cost;
  };
  std::array<StageTime, deepseek_v41::kStages> stages;
  double gaps = 0;  // of a profiled step, between operators: launches, uploads, planning

  double median() const;
};

class StepBench {
 public:
  // Steps of measure() after the timed ones, in which every operator is timed too.
  static constexpr int kProfiled = 3;

  explicit StepBench(const StepBenchOptions& options);
  ~StepBench();

  const V41Config& config() const { return model_->config(); }
  deepseek_v41::Model& model() { return *model_; }
  Context& context() { return *context_; }
  Backend backend() const { return backend_; }

  // Steps of measure(), by which requests that decode grow.
  int64_t steps() const { return int64_t{options_.warm_up} + options_.steps + kProfiled; }
  // Throws when requests of `context` tokens, which grow by so many, are longer than the model takes.
  void expect_context(int64_t context, int64_t growth = 0) const;

  // Pools for `slots` requests and `pages` pages, full of random rows.
  std::unique_ptr<CachePools> make_pools(int slots, int pages);
  // Draws experts for steps of up to this many rows.
  void expect_rows(int rows);
  // Tokens of a request that has read `length` of them.
  std::vector<int32_t> random_tokens(int64_t count);

  // Times steps. `propose` opens the proposals of a step; `settle` makes the states ready for the next one, outside the time.
  StepTimes measure(std::span<const SegmentRequest> requests, const std::function<void()>& propose,
                    const std::function<void()>& settle);

  // Runs one step, and shows every operator call to `visit` with its arguments and what it costs at least (nothing: it is
  // not counted). The call is done by then and may be repeated.
  using Visit = std::function<void(OperatorId op, const void* args, const deepseek_v41::Cost* cost)>;
  void visit_step(std::span<const SegmentRequest> requests, const std::function<void()>& propose, const Visit& visit);
  const deepseek_v41::Roof& roof() const { return roof_; }
  std::string device_name() const { return context_->device_name(); }

  // For the reader: what ran where, one line each.
  std::string describe() const;
  // The keys that every recorded result has.
  json::object result(const StepTimes& times) const;
  void print(const StepTimes& times) const;
  // A picture of the stages: what each takes, and how much of it the roof allows no less than.
  std::string picture(const std::string& title, const StepTimes& times) const;

 private:
  class Watch;

  void load();
  void measure_roof();
  deepseek_v41::Roof cpu_roof(int repeats);  // the best of so many
  double run_step(std::span<const SegmentRequest> requests, const std::function<void()>& propose, StepTimes* times);
  double floor_of(const StepTimes& times) const;

  StepBenchOptions options_;
  Backend backend_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::optional<HugePages> huge_pages_;  // of a checkpoint that a CPU reads
  std::unique_ptr<deepseek_v41::Model> model_;
  std::string name_;  // of the model or the configuration
  int ranks_ = 1;
  deepseek_v41::CostOptions cost_;
  deepseek_v41::Roof roof_;
  uint64_t tokens_made_ = 0;
};

// The last `tokens` of a prompt of `context` tokens, again and again over the same state.
StepTimes time_prefill(StepBench& bench, CachePools& pools, const std::string& mode, int64_t context, int tokens);
// One token a step for each of `batch` requests that stand at `context`.
StepTimes time_decode(StepBench& bench, CachePools& pools, int batch, int64_t context);

}  // namespace hadal
