// The compressor of a KV-source layer: appends compressed latents and index keys to the owner's pools.    spec 3.4, 3.5
#pragma once

#include "ops/types.h"

namespace hadal {

// For every group that a row of this step completes (rows of a segment are consecutive positions from segments.first):
//   ratio 1: c = norm( bf16( wkv x ) )
//   ratio 2: a = wkv x, b = wgate x in fp32; w = softmax over the two tokens, per channel; c = norm( bf16( sum w a ) )
//   key   = Q2( rope( k_norm( wk c ), g * ratio ) )      from c before rotation
//   entry = Q3( rope( c, g * ratio ) )
// A group whose first token belongs to an earlier step takes that token's (a, b) from `pending`.
struct CompressorArgs {
  Tensor x;                      // activations [rows.rows, d]
  const RowSet* rows = nullptr;  // all rows of the step
  const Segments* segments = nullptr;

  int ratio = 1;
  int head_dim = 0;
  int index_dim = 0;
  float norm_eps = 1e-20f;
  Rope rope;  // of the entries; the key rotates its own last rope.dim channels with the same frequencies

  Weight wkv;                        // bf16 [head_dim, d]
  Weight wgate;                      // bf16 [head_dim, d]; empty at ratio 1
  const uint16_t* norm = nullptr;    // bf16 [head_dim]
  Weight wk;                         // bf16 [index_dim, head_dim]
  const uint16_t* k_norm = nullptr;  // bf16 [index_dim]

  const float* pending = nullptr;  // [slots, 2 * head_dim] (a, b) of the last committed token when the length is odd
  Tensor ab;                       // f32 [rows.rows, 2 * head_dim] out, ratio 2: (a, b) of every row, for the commit
  PagedRows entries;               // RowFormat::fp4_e4m3_16
  PagedRows keys;                  // RowFormat::fp4_ue8m0_32
  Tensor latent;                   // f32 [rows.rows, head_dim], optional, for traces: c of the group that row completes
};

}  // namespace hadal
