// The indexer of an index-source layer: scores the compressed entries that a query may see, and selects.     spec 3.5
#pragma once

#include "ops/types.h"

namespace hadal {

enum class CandidateUse : uint8_t {
  none,     // score every visible entry
  publish,  // score every visible entry, select, and also publish candidate blocks
  filter,   // score entries of the published candidate blocks only
};

//   iq = Q2( rope per head ( wq_b qr, p ) );  w = bf16( bf16(weights_proj x) * factor ), factor = dim^-.5 * heads^-.5
//   score[g] = sum_h w_h * relu( iq_h . key_g )          visible: g < (p + 1) / ratio
//   selected = the topk largest scores, lower group first among equals, listed in ascending group order
// Scores are fp32; `official` rounds the dot product, the product with w and the sum to bf16.
// The order of the sum over heads is the backend's own, and the same for every row and entry.
struct IndexerArgs {
  const RowSet* rows = nullptr;
  const Segments* segments = nullptr;
  Tensor qr;                          // activations [rows.rows, q_lora]
  Tensor x;                           // activations [.., d]
  const int32_t* x_source = nullptr;  // [rows.rows] row of x, null = the same rows

  int ratio = 1;
  int heads = 0;
  int index_dim = 0;
  int topk = 0;
  Rope rope;
  Weight wq_b;          // [heads * index_dim, q_lora]
  Weight weights_proj;  // bf16 [heads, d]
  PagedRows keys;       // the owner's

  CandidateUse use = CandidateUse::none;
  int candidate_topk_blocks = 0;
  int candidate_block_size = 0;
  Candidates candidates;  // written by `publish`, read by `filter`

  Selection selection;
  // For tests and traces, optional: queries after rounding [rows, heads * dim] f32; scores [rows, score columns] f32,
  // -inf where not visible or not a candidate.
  Tensor query_trace;
  Tensor score_trace;
};

}  // namespace hadal
