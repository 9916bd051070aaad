// Times the tiles of the matrix kernels on the card at hand: what `hadal tune` does.
#pragma once

#include <vector>

#include "ops/cuda/context.h"
#include "ops/operators.h"
#include "ops/tuning.h"

namespace hadal::cuda {

// An FP8 weight [n, k * groups] as the model has it; `rounded`: its results leave as Q4 (`fp8` numerics).
struct TunedLinear {
  int n = 0;
  int k = 0;
  int groups = 1;
  bool rounded = false;
};

// Milliseconds of every tile that this many rows can take, random values, weights and clocks as in a long run of such
// products: medians of calls in turn. Empty where there is nothing to choose.
std::vector<Tuning::Choice> time_tiles(CudaContext& context, const Operators& operators, const TunedLinear& linear,
                                       int rows);

}  // namespace hadal::cuda
