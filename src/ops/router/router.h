// The router: sqrt(softplus) scores, bias for selection only, normalised weights.      spec 3.7
#pragma once

#include "ops/types.h"

namespace hadal {

//   s = sqrt(softplus(gate x / gate_temp)) in fp32;  ids = the topk largest of s + bias, lower id first among equals;
//   weights = s[ids] / (sum s[ids] + 1e-20) * route_scale.   Ids are written in ascending order.
// Rows marked in `image` use bias_vl.
struct RouterArgs {
  int rows = 0;
  int topk = 0;
  float route_scale = 1.5f;
  float gate_temp = 1.0f;
  Tensor x;                        // activations [rows, d]
  Weight gate;                     // bf16 [experts, d]
  const float* bias = nullptr;     // [experts]
  const float* bias_vl = nullptr;  // [experts] or null
  const uint8_t* image = nullptr;  // [rows] or null
  Tensor ids;                      // i32 [rows, topk]
  Tensor weights;                  // f32 [rows, topk]
  Tensor scores;                   // f32 [rows, experts], optional, for traces
};

}  // namespace hadal
