// Routed experts and the shared expert.      spec 3.8
#pragma once

#include <memory>

#include "ops/types.h"

namespace hadal {

//   gate = bf16(w1 x), up = bf16(w3 x);  up = clamp(up, -limit, limit), gate = min(gate, limit)
//   a = bf16( weight * (silu(gate) * up) );   routed = sum over ids ascending of bf16(w2 a), in fp32
//   y = bf16( routed + bf16(shared(x)) )          the shared expert has weight 1
// Experts that are not local contribute nothing and their rows are not read.
struct ExpertsArgs {
  int rows = 0;
  int topk = 0;
  float limit = 10.0f;
  Tensor x;        // activations [rows, d]
  Tensor ids;      // i32 [rows, topk] ascending in a row
  Tensor weights;  // f32 [rows, topk]
  const ExpertStore* experts = nullptr;
  FeedForward shared;
  Tensor y;  // activations [rows, d]
  // What Operators::begin_experts has begun: bf16(shared(x)), activations [rows, d], and what the backend keeps until then.
  Tensor shared_out;
  std::shared_ptr<void> begun;
};

}  // namespace hadal
