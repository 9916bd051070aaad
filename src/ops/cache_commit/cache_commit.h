// Makes accepted rows of a step part of the requests' state.      spec 4, 10.8
#pragma once

#include <span>

#include "ops/types.h"

namespace hadal {

// For every layer, whose caches are its own, and every segment s, with n = accepted[s] leading step rows accepted and length
// L = first + n:
//   ring: rows of `in` at the last `window` accepted positions are copied to their slots (fewer when `in` has fewer);
//   pending (when given): if n > 0 and L is odd, (a, b) of position L - 1 is copied from `ab` (row of that position in `in`).
// Rows of `in` at positions >= L are not read.
struct CommittedLayer {
  const RowSet* in = nullptr;
  Tensor latent;  // u8 [in.rows, ring.row_bytes]
  WindowRing ring;
  Tensor ab;                 // f32 [in.rows, 2 * head_dim] or empty
  float* pending = nullptr;  // [slots, 2 * head_dim] or null
};
struct CacheCommitArgs {
  const Segments* segments = nullptr;
  const int32_t* accepted = nullptr;  // [segments]
  std::span<const CommittedLayer> layers;
};

}  // namespace hadal
