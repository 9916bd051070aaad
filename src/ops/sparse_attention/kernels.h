// The kernels behind the sparse attention operator.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/sparse_attention/sparse_attention.h"

namespace hadal::cuda {

// The arguments with everything that the contract points to, by value, as a kernel can read it.
struct AttentionProblem {
  SparseAttentionArgs args;
  RowSet in, out;
  Segments segments;
  PagedRows entries;
  Selection selection;
  bool has_entries = false;
  bool round_probabilities = true;
  const float2* rotations = nullptr;  // [out.rows, rope.dim / 2], filled by matrix_attention
};

// most_keys: an upper bound of the keys of a row.
void general_attention(const AttentionProblem& problem, int most_keys, cudaStream_t stream);

// 64 heads of 512 channels. One block works through whole queries.
bool matrix_attention_takes(const AttentionProblem& problem, int most_keys);
// rotations: scratch of out.rows * rope.dim / 2.
void matrix_attention(AttentionProblem problem, float2* rotations, int multiprocessors, cudaStream_t stream);

}  // namespace hadal::cuda
