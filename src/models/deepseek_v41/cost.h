// What a step must do at least: multiplications and additions, and bytes moved to and from memory, by stage. The one place
// for these formulas; benchmarks divide them by what a machine can do.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "checkpoint/deepseek_v41_config.h"
#include "ops/operators.h"
#include "state/step_plan.h"

namespace hadal::deepseek_v41 {

enum class Stage : uint8_t {
  sparse_attention,
  indexer,  // scores and selection
  compressor,
  experts,  // routed and shared, with the sum of both
  dense,    // the projections in front of and behind attention, with their norms
  router,
  hyper_connections,
  engram,
  head,
  other,  // embedding, taps, drafts, commit
};
inline constexpr int kStages = static_cast<int>(Stage::other) + 1;
std::string_view to_string(Stage stage);
Stage stage_of(OperatorId op);

struct Cost {
  double flops = 0;
  double bytes = 0;
  double flops8 = 0;  // of products of 8-bit operands
};

// What a machine can do.
struct Roof {
  double flops_per_second = 0;
  double bytes_per_second = 0;
  double flops8_per_second = 0;
  double seconds(const Cost& cost) const;
};

struct StageCost {
  Cost sum;
  double seconds = 0;  // of the roof, the sum over calls: one call may be bound by bytes and the next by arithmetic
};

struct CostOptions {
  int local_experts = 0;        // expert weights that exist here; 0 = all
  double activation_bytes = 2;  // of one value between operators
  bool products8 = false;       // linears with FP8 and MXFP4 weights multiply 8-bit operands: `fp8` numerics on a GPU
};

// One operator call of a step.
struct CallCost {
  OperatorId op;
  Cost cost;
};

// The calls of a step in the order in which the model makes them, those of one operator at least. Every input read once and
// every output written once, each weight once a call. Rows of caches that several rows of a step select count once. Experts
// count as often as uniform random routing uses them.
std::vector<CallCost> call_costs(const V41Config& config, const StepPlan& plan, const CostOptions& options);
// Their sums.
std::array<StageCost, kStages> step_cost(const V41Config& config, const StepPlan& plan, const CostOptions& options,
                                         const Roof& roof);

}  // namespace hadal::deepseek_v41
