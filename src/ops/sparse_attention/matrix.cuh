// What the two kernels of the matrix attention share: the layout of its scratch memory.
#pragma once

#include "ops/sparse_attention/expand.cuh"
#include "ops/sparse_attention/kernels.h"
#include "ops/sparse_attention/keys.cuh"

namespace hadal::cuda {

// Expanded rows: one of zeros, which stands for keys past the end of a list; then the pages of the segments, the rows of the
// step and the rings of the segments.
struct ExpandedRows {
  uint8_t* rows;
  int32_t* page_begin;  // [pages of the pool] expanded row of the first row of a page
  int first_latent, first_ring;
  int begin;       // rows before it were expanded by a layer before this one
  int page_shift;  // rows of a page as a power of two
  int64_t count;
};

#ifdef __CUDACC__
// Asks for the rows of a query's ring to be brought to L2, by 128 threads. Steps before this one wrote them.
__device__ __forceinline__ void prefetch_ring(const AttentionProblem& p, const KeyList& keys, int thread) {
  if (thread >= 128 || thread >= keys.ring_count) return;
  const uint8_t* row = window_row(p.args, keys, thread);
#pragma unroll
  for (int i = 0; i < 5; ++i)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(row + min(128 * i, p.args.ring.row_bytes - 1)));
}

// The packed row of key t, with kIsEntry; 0 past the end of the list.
__device__ __forceinline__ uint64_t entry_address(const AttentionProblem& p, int64_t row) {
  return reinterpret_cast<uint64_t>(p.entries.rows + row * p.entries.row_bytes) | kIsEntry;
}
// likely: likely_entry(t), which is read while the list is still looked for.
__device__ __forceinline__ int likely_entry(const AttentionProblem& p, const KeyList& keys, int t) {
  const int at = t - p.args.ring.window;  // the window is full
  return keys.entries != nullptr && at >= 0 && at < p.selection.rows.cols ? keys.entries[at] : 0;
}
__device__ __forceinline__ uint64_t packed_row(const AttentionProblem& p, const KeyList& keys, int t, int likely) {
  if (t >= keys.count()) return 0;
  if (t < keys.window_count()) return reinterpret_cast<uint64_t>(window_row(p.args, keys, t));
  return entry_address(p, keys.window_count() == p.args.ring.window ? likely : keys.entries[t - keys.window_count()]);
}

// The expanded row of window key t of a query, and of an entry. keys: the query's list.
__device__ __forceinline__ int expanded_window_row(const ExpandedRows& e, const AttentionProblem& p,
                                                   const KeyList& keys, int query, int t) {
  const int window = p.args.ring.window;
  return t < keys.ring_count ? e.first_ring + p.out.segment[query] * window + (keys.ring_first + t) % window
                             : e.first_latent + keys.latent_first + t - keys.ring_count;
}
__device__ __forceinline__ int expanded_entry_row(const ExpandedRows& e, int row) {
  return e.page_begin[row >> e.page_shift] + (row & ((1 << e.page_shift) - 1));
}
#endif

// expand.cu
void launch_expand(const AttentionProblem& problem, const ExpandedRows& expanded, cudaStream_t stream);

}  // namespace hadal::cuda
