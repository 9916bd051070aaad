// The kernels behind the sparse attention operator.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "ops/cuda/fp8_rows.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace hadal::cuda {

// The kernels for 64 heads of 512 channels. All give the same bits.
enum class AttentionKernel : uint8_t {
  eight,   // few queries, of at most kMostFewKeys keys: eight multiprocessors work on one
  four,    // the same with four
  window,  // no entries: a run of neighbouring queries on each multiprocessor, whose rows are expanded once
  shared,  // one multiprocessor a query, from rows that are expanded first: of the step, of the rings, of the requests' pages
  packed,  // one multiprocessor a query, which expands its rows itself
};

// The kernels of one multiprocessor a query rotate queries that are not rotated yet, of this many channels.
inline constexpr int kRotatedDim = 64;

// The arguments with everything that the contract points to, by value, as a kernel can read it.
struct AttentionProblem {
  SparseAttentionArgs args;
  RowSet in, out;
  Segments segments;
  PagedRows entries;
  Selection selection;
  bool has_entries = false;
  bool round_probabilities = true;
  Fp8Rows o_q4;  // with codes: Q4 of the output is written there, and args.o is not (not by general_attention)
  std::optional<AttentionKernel>
      kernel;  // in place of the choice, for measurements and tests: one that takes the problem
};

// most_keys: an upper bound of the keys of a row.
void general_attention(const AttentionProblem& problem, int most_keys, cudaStream_t stream);

// Whether the problem has the shape of AttentionKernel.
bool matrix_attention_takes(const AttentionProblem& problem, int most_keys);
AttentionKernel attention_kernel_for(const AttentionProblem& problem, int most_keys, int multiprocessors);
size_t attention_scratch_bytes(const AttentionProblem& problem, AttentionKernel kernel);
// Operators::shared_entries_bytes.
size_t shared_entries_bytes(Context& context, const SparseAttentionArgs& args);
// lasting: few_attention_lasting_bytes of memory that was zero at first and that only this function has written since.
// scratch: may be args.shared's memory.
void matrix_attention(const AttentionProblem& problem, AttentionKernel kernel, int most_keys, void* scratch,
                      void* lasting, int multiprocessors, cudaStream_t stream);

// few.cu: with eight or four blocks a query, as many queries at a time as there are multiprocessors for.
inline constexpr int kMostFewKeys = 640;
size_t few_attention_lasting_bytes(int multiprocessors);
void few_attention(const AttentionProblem& problem, int blocks, int most_keys, void* lasting, int multiprocessors,
                   cudaStream_t stream);
// window.cu
bool window_attention_takes(const AttentionProblem& problem);
void window_attention(const AttentionProblem& problem, int multiprocessors, cudaStream_t stream);

}  // namespace hadal::cuda
