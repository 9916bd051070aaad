// What operators share: weights, the rows of a step, and the paged caches.
#pragma once

#include <cstdint>

#include "base/row_format.h"
#include "ops/context.h"

namespace hadal {

// ---- weights ---------------------------------------------------------------------------------------------------
enum class WeightFormat : uint8_t {
  f32,
  bf16,
  fp8_block32,  // e4m3 [n, k], ue8m0 [ceil(n/32), ceil(k/32)]
  mxfp4,        // e2m1 [n, k/2] (low nibble = even column), ue8m0 [n, k/32]
};

// A matrix [n, k] as published, y = W x; k is a multiple of 32, n is anything. `data` and `scale` are in the backend's
// memory.
struct Weight {
  WeightFormat format = WeightFormat::bf16;
  int n = 0;
  int k = 0;
  const void* data = nullptr;
  const uint8_t* scale = nullptr;
  // A GPU's own layout of the same values, made at load; null where the published bytes are read in place.
  const void* packed = nullptr;

  explicit operator bool() const { return data != nullptr || packed != nullptr; }
};

struct FeedForward {
  Weight w1, w3, w2;  // gate [i, d], up [i, d], down [d, i]
};

// The routed experts of one layer. A weight is asked for, not dereferenced: it may be resident, mapped or streamed,
// and on a rank that owns a share of the experts `is_local` is false for the others.
class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  virtual int count() const = 0;
  virtual bool is_local(int expert) const = 0;
  virtual const FeedForward& expert(int expert) const = 0;
  // Expert ids that this step will use, as soon as the router knows them (device memory on a GPU).
  virtual void hint(const int32_t* ids, int count) const = 0;
};

// ---- rows of a step ----------------------------------------------------------------------------------------------
// A step is a list of segments (request, first position, count). A layer works on a RowSet: for every segment a suffix
// of its rows, packed in segment order. Encoder layers see all rows; in `exact` and `bounded` prefill the sets of the
// decoder layers shrink (spec 10.1). All arrays are in the backend's memory.
struct RowSet {
  int rows = 0;
  const int32_t* position = nullptr;   // [rows] absolute position
  const int32_t* segment = nullptr;    // [rows] index of the segment
  const int32_t* step_row = nullptr;   // [rows] row among all rows of the step
  const int32_t* seg_begin = nullptr;  // [segments + 1] first row of each segment in this set
};

// The requests of a step.
struct Segments {
  int count = 0;
  const int32_t* first = nullptr;       // [count] position of the first step row = committed length
  const int32_t* slot = nullptr;        // [count] slot in the per-request pools (window rings, pending halves)
  const int32_t* page_table = nullptr;  // [count, page_stride] pages in order
  int page_stride = 0;
};

// ---- caches --------------------------------------------------------------------------------------------------------
// Rows of one owner layer: row of group g = rows + ((page_table[g / page_rows] * page_rows) + g % page_rows) * row_bytes.
// A page covers the same number of tokens in every pool, so one page table serves all owners.
struct PagedRows {
  uint8_t* rows = nullptr;
  int row_bytes = 0;
  int page_rows = 0;  // page_tokens / ratio
  int pages = 0;      // of the pool; 0: not known

  // Physical row of group g: what selections hold.
  static int64_t physical(const int32_t* pages, int page_rows, int64_t g) {
    return static_cast<int64_t>(pages[g / page_rows]) * page_rows + g % page_rows;
  }
};

// Window rings of one layer: position p of a request is at base + (slot * window + p % window) * row_bytes. A ring holds
// committed positions only; the rows of the running step are read from the step's own latents.
struct WindowRing {
  uint8_t* base = nullptr;
  int row_bytes = 0;
  int window = 0;
};

// What an index-source layer publishes and the layers up to the next one read; indexed by step row.
struct Selection {
  Tensor rows;   // i32 [step rows, topk] physical rows in the owner's pool, ascending group order, -1 past the end
  Tensor count;  // i32 [step rows, 1]
};

// Candidate blocks, published by one layer for the index-source layers after it; indexed by step row.
struct Candidates {
  Tensor blocks;  // i32 [step rows, candidate_topk_blocks] ascending block numbers, -1 past the end
  Tensor count;   // i32 [step rows, 1]; -1 = every visible block is a candidate (then `blocks` is not read)
};

// Rotation frequencies, fp32 bits as published (spec 3.1); angle = fp32(position) * inv_freq[i].
struct Rope {
  const float* inv_freq = nullptr;  // [dim / 2]
  int dim = 0;                      // rotated channels, the last of a row, as interleaved pairs
};

}  // namespace hadal
