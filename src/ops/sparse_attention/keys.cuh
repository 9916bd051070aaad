// Where the keys of a query lie: window rows of the ring and of the step, then selected entries (spec 10.3).
#pragma once

#include <cstdint>

#include "ops/sparse_attention/sparse_attention.h"

namespace hadal::cuda {

struct KeyList {
  int ring_first = 0;  // position of the first key from the ring
  int ring_count = 0;
  int latent_first = 0;  // row of `in` of the first key from the step
  int latent_count = 0;
  int entry_count = 0;
  const uint8_t* ring = nullptr;  // this request's ring
  const int32_t* entries = nullptr;

  __device__ int window_count() const { return ring_count + latent_count; }
  __device__ int count() const { return ring_count + latent_count + entry_count; }
};

// Without the entries. What this reads is uploaded when a step begins: a kernel may look for it before it waits for the one
// in front.
__device__ inline KeyList window_keys(const SparseAttentionArgs& a, int row, const RowSet& in, const RowSet& out,
                                      const Segments& segments) {
  // Two loads deep: what is found from `row`, then what is found from its segment.
  const int segment = out.segment[row], position = out.position[row], committed = segments.first[segment];
  const int in_begin = in.seg_begin[segment], in_end = in.seg_begin[segment + 1], window = a.ring.window;
  const int out_end = out.seg_begin[segment + 1];
  KeyList keys;
  keys.ring = a.ring.base + static_cast<int64_t>(segments.slot[segment]) * window * a.ring.row_bytes;
  if (a.bidirectional) {
    keys.ring_first = max(committed - window, 0);
    keys.ring_count = committed - keys.ring_first;
    keys.latent_first = in_begin;
    keys.latent_count = in_end - in_begin;
  } else {
    const int floor = a.floor == nullptr ? 0 : max(a.floor[segment], 0);
    const int first = max(max(position - window + 1, 0), floor);
    // Of the segment's first row of `in`: both sets end with the same row, at consecutive positions.
    const int in_position = position + (out_end - 1 - row) - (in_end - 1 - in_begin);
    keys.ring_first = first;
    keys.ring_count = max(min(in_position, position + 1) - first, 0);
    const int from = max(first, in_position);
    keys.latent_first = in_begin + (from - in_position);
    keys.latent_count = max(position + 1 - from, 0);
  }
  return keys;
}

__device__ inline void add_entries(KeyList& keys, int step_row, const Selection& selection) {
  keys.entry_count = static_cast<const int32_t*>(selection.count.data)[step_row];
  keys.entries =
      static_cast<const int32_t*>(selection.rows.data) + static_cast<int64_t>(step_row) * selection.rows.cols;
}

__device__ inline KeyList key_list(const SparseAttentionArgs& a, int row, const RowSet& in, const RowSet& out,
                                   const Segments& segments, const PagedRows* entries, const Selection* selection) {
  KeyList keys = window_keys(a, row, in, out, segments);
  if (entries != nullptr) add_entries(keys, out.step_row[row], *selection);
  return keys;
}

// The packed row of window key t < window_count().
__device__ inline const uint8_t* window_row(const SparseAttentionArgs& a, const KeyList& keys, int t) {
  if (t < keys.ring_count)
    return keys.ring + static_cast<int64_t>((keys.ring_first + t) % a.ring.window) * a.ring.row_bytes;
  return static_cast<const uint8_t*>(a.latent.data) +
         static_cast<int64_t>(keys.latent_first + t - keys.ring_count) * a.latent.cols;
}

}  // namespace hadal::cuda
