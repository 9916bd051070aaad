// What the two kernels of the matrix attention share: the layout of its scratch memory.
#pragma once

#include "ops/sparse_attention/expand.cuh"
#include "ops/sparse_attention/kernels.h"
#include "ops/sparse_attention/keys.cuh"

namespace hadal::cuda {

// Expanded rows: one of zeros, which stands for keys past the end of a list; then the rows of the step, the rings of the
// segments and their pages. Without shared rows, rotations alone.
struct ExpandedRows {
  uint8_t* rows;
  int32_t* page_begin;  // [pages of the pool] expanded row of the first row of a page
  float2* rotations;    // [queries of the step, rope.dim / 2]
  int first_ring, first_entry;
  int page_shift;  // rows of a page as a power of two
  int64_t count;
};

#ifdef __CUDACC__
// The packed row of key t, with kIsEntry; 0 past the end of the list.
__device__ __forceinline__ uint64_t entry_address(const AttentionProblem& p, int64_t row) {
  return reinterpret_cast<uint64_t>(p.entries.rows + row * p.entries.row_bytes) | kIsEntry;
}
__device__ __forceinline__ uint64_t packed_row(const AttentionProblem& p, const KeyList& keys, int t) {
  if (t >= keys.count()) return 0;
  if (t < keys.window_count()) return reinterpret_cast<uint64_t>(window_row(p.args, keys, t));
  return entry_address(p, keys.entries[t - keys.window_count()]);
}

// The expanded row of window key t of a query, and of an entry. keys: the query's list.
__device__ __forceinline__ int expanded_window_row(const ExpandedRows& e, const AttentionProblem& p,
                                                   const KeyList& keys, int query, int t) {
  const int window = p.args.ring.window;
  return t < keys.ring_count ? e.first_ring + p.out.segment[query] * window + (keys.ring_first + t) % window
                             : 1 + keys.latent_first + t - keys.ring_count;
}
__device__ __forceinline__ int expanded_entry_row(const ExpandedRows& e, int row) {
  return e.page_begin[row >> e.page_shift] + (row & ((1 << e.page_shift) - 1));
}
#endif

// expand.cu
void launch_expand(const AttentionProblem& problem, const ExpandedRows& expanded, cudaStream_t stream);

}  // namespace hadal::cuda
