// Embedding rows into the four residual copies.
#pragma once

#include "ops/types.h"

namespace hadal {

// h[r, j, :] = embed[token[r]] for every copy j;  pre[r] = (1, 0, 0, 0).     spec 3.2
struct EmbeddingArgs {
  const int32_t* tokens = nullptr;  // [rows], each in [0, embed.n)
  Weight embed;                     // bf16 [vocab, d]
  Tensor h;                         // activations [rows, copies * d]
  Tensor pre;                       // f32 [rows, copies]
};

}  // namespace hadal
