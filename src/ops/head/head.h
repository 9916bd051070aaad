// Logits.      spec 3.10
#pragma once

#include "ops/types.h"

namespace hadal {

// logits = fp32(head) . fp32(x), fp32 accumulation and fp32 result.
struct HeadArgs {
  int rows = 0;
  Tensor x;       // activations [rows, d], after the final norm
  Weight head;    // bf16 [vocab, d]
  Tensor logits;  // f32 [rows, vocab]
};

}  // namespace hadal
