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
};

// most_keys: an upper bound of the keys of a row.
void general_attention(const AttentionProblem& problem, int most_keys, cudaStream_t stream);

// 64 heads of 512 channels: three kernels with the same bits.
//
// Few queries: eight multiprocessors a query.
inline constexpr int kMostFewKeys = 640;
size_t few_attention_bytes(int queries, int most_keys);
void few_attention(const AttentionProblem& problem, int most_keys, void* scratch, cudaStream_t stream);

// Many: one multiprocessor a query. A first kernel expands packed rows to bf16 in scratch memory, where that pays; a second one
// attends.
bool matrix_attention_takes(const AttentionProblem& problem, int most_keys);
enum class KeySource : uint8_t {
  few,     // the kernel for few queries, which expands
  shared,  // every row that some query may see is expanded once: of the step, of the rings, of the requests' pages
  packed,  // the kernel for many queries expands
};
struct MatrixAttentionPlan {
  KeySource source = KeySource::packed;
  size_t bytes = 0;  // of scratch, at 256 bytes
};
// Also for a given source, with which the problem must be possible.
MatrixAttentionPlan plan_matrix_attention(const AttentionProblem& problem, int most_keys);
MatrixAttentionPlan plan_matrix_attention(const AttentionProblem& problem, int most_keys, KeySource source);
void matrix_attention(const AttentionProblem& problem, const MatrixAttentionPlan& plan, int most_keys, void* scratch,
                      int multiprocessors, cudaStream_t stream);

}  // namespace hadal::cuda
