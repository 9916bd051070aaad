// The projections in front of attention: low-rank query, and the window latent in its packed form.     spec 3.3
#pragma once

#include "ops/types.h"

namespace hadal {

//   latent[r] = Q1( rope( kv_norm( wkv x ), p ) )                 for every row of `in`
//   qr[o]     = q_norm( wq_a x[source[o]] )                       for every row of `out`
//   q[o]      = rope per head ( wq_b qr[o], p )
// The latent is stored packed (RowFormat::fp8_ue8m0_32). Leave `out` null to make latents only.
struct AttentionInputArgs {
  Tensor x;          // activations [in.rows, d]; may be empty where x_rounded is given and `out` has the same rows
  Tensor x_rounded;  // x as Operators::linear_input has it for wkv where that is u8, optional
  const RowSet* in = nullptr;
  const RowSet* out = nullptr;
  const int32_t* source = nullptr;  // [out.rows] row of x, null = the same rows

  int heads = 0;
  int head_dim = 0;
  float norm_eps = 1e-20f;
  Rope rope;

  Weight wkv;                         // [head_dim, d]
  const uint16_t* kv_norm = nullptr;  // bf16 [head_dim]
  Weight wq_a;                        // [q_lora, d]
  const uint16_t* q_norm = nullptr;   // bf16 [q_lora]
  Weight wq_b;                        // [heads * head_dim, q_lora]

  Tensor latent;  // u8 [in.rows, row_bytes(fp8_ue8m0_32, head_dim)]
  Tensor qr;      // activations [out.rows, q_lora]
  Tensor q;       // activations [out.rows, heads * head_dim]
  // Operators::query_angles, for `out` of the same rows as `in`: written, and q is not rotated.
  Tensor q_angles;
};

}  // namespace hadal
