// What only the draft module (DSpark) needs: its conditioning input, the Markov correction, the confidence.    spec 5
#pragma once

#include "ops/types.h"

namespace hadal {

// main_x = main_norm( main_proj main_hidden )
struct DraftContextArgs {
  int rows = 0;
  float norm_eps = 1e-20f;
  Tensor main_hidden;                   // activations [rows, taps * d]
  Weight main_proj;                     // [d, taps * d]
  const uint16_t* main_norm = nullptr;  // bf16 [d]
  Tensor main_x;                        // activations [rows, d]
};

// logits[v] = base[v] + markov_head[v] . markov_embed[token], fp32;
// confidence = sigma( proj . concat(hidden, markov_embed[token]) ), fp32.
struct DraftLogitsArgs {
  int rows = 0;
  const int32_t* tokens = nullptr;  // [rows] the token in front of the drafted one
  Tensor base;                      // f32 [rows, vocab]
  Tensor hidden;                    // activations [rows, d], collapsed, before the norm
  Weight markov_embed;              // bf16 [vocab, rank]
  Weight markov_head;               // bf16 [vocab, rank]
  Weight confidence;                // bf16 [1, d + rank]
  Tensor logits;                    // f32 [rows, vocab]
  Tensor probability;               // f32 [rows, 1]
};

}  // namespace hadal
