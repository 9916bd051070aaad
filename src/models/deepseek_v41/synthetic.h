// One rank of a model that is not at hand: its configuration, and random weights made on the device.
#pragma once

#include <functional>

#include "models/deepseek_v41/weights.h"

namespace hadal::deepseek_v41 {

// The share of one of `ranks` ranks, each of which holds all dense layers, 1/ranks of the experts and 1/ranks of the rows of
// every Engram table, and no draft stages.
struct Rank {
  V41Config config;       // n_routed_experts stays: the router knows all of them
  int local_experts = 0;  // experts 0 .. local_experts - 1 are here
};
struct RankOptions {
  int ranks = 1;
  int layers = 0;           // the first ones; 0 = all
  int64_t engram_rows = 0;  // of one table, about; 0 = the rank's share
};
// Throws invalid_argument when the options do not fit the configuration.
Rank make_rank(const V41Config& config, const RankOptions& options);

// Normal values of a size that keeps activations at about 1. `progress` is given the share that is done. Throws unsupported
// for a backend that makes no random weights.
ModelWeights random_model_weights(const Rank& rank, uint64_t seed, Context& context, const Operators& operators,
                                  const std::function<void(double)>& progress = {});

}  // namespace hadal::deepseek_v41
