// Attention of each row over its window and its selected compressed entries; one latent is key and value.   spec 3.3, 3.6
#pragma once

#include "ops/types.h"

namespace hadal {

// Keys of row r at position p, in this order (spec 10.3):
//   window: positions max(0, p - window + 1, floor[segment]) .. p ascending. A position that is a row of `in` is read from
//           `latent`, an earlier one from the ring. With `bidirectional` (draft rows, spec 5.2) every row of a segment
//           sees the ring's positions max(0, first - window) .. first - 1, then all rows of the segment in `in`.
//   then selection.rows[step_row][0 .. count) from `entries`, ascending.
// Per head n:  l_t = (q_n . k_t) * scale;  M = max l_t (sink excluded, floored at -1e30);  e_t = exp(l_t - M)
//              o_n = bf16( sum_t bf16(e_t) v_t / (sum_t e_t + exp(sink_n - M)) )
// then the last rope.dim channels of o_n are rotated back by the conjugate at p and rounded again.
// bf16(e_t) is the published rounding of `bf16` and `official`; fp32 keeps e_t.
struct SharedEntries;
struct SparseAttentionArgs {
  const RowSet* in = nullptr;   // rows that `latent` holds
  const RowSet* out = nullptr;  // query rows, a suffix of `in` in every segment
  const Segments* segments = nullptr;

  int heads = 0;
  int head_dim = 0;
  float scale = 0;
  Rope rope;
  const float* sink = nullptr;  // [heads]

  Tensor q;       // activations [out.rows, heads * head_dim]
  Tensor latent;  // u8 [in.rows, row_bytes(fp8_ue8m0_32)]
  WindowRing ring;
  const int32_t* floor = nullptr;  // [segments] or null
  bool bidirectional = false;

  const PagedRows* entries = nullptr;  // null: window only
  const Selection* selection = nullptr;
  SharedEntries* shared = nullptr;  // null: of this call alone

  Tensor o;  // [out.rows, heads * head_dim], as Operators::linear_input has it for wo_a
  // f32 [out.rows, rope.dim] where q is not rotated yet, else empty: cosine and sine of each pair. May rotate q in place.
  Tensor q_angles;
};

// Where layers that see the same entries in a step leave each other these in the form in which a backend reads them. The first
// one's arguments say how many bytes of step memory that takes (Operators::shared_entries_bytes); the rows of the step and of
// the rings, which are each layer's own, lie behind the entries, so later layers must not have more rows in `in`.
struct SharedEntries {
  void* memory = nullptr;
  size_t bytes = 0;
  bool filled = false;  // with the entries, by a call before
};

}  // namespace hadal
