// The grouped low-rank output projection.      spec 3.3
#pragma once

#include "ops/types.h"

namespace hadal {

//   u_i = wo_a[i] o[group i]   (input rounded in `fp8` numerics only);   y = wo_b concat(u)
struct AttentionOutputArgs {
  int rows = 0;
  int groups = 0;
  Tensor o;     // linear_input [rows, heads * head_dim]; group i = columns i * k .. with k = cols / groups
  Weight wo_a;  // [groups * o_lora, heads * head_dim / groups]
  Weight wo_b;  // [d, groups * o_lora]
  Tensor y;     // activations [rows, d]
};

}  // namespace hadal
