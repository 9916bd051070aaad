// Accepted rows into the window rings and the pending halves.      spec 4, 10.8
#include "ops/cache_commit/cache_commit.h"

#include <algorithm>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

void cache_commit(Context& context, const CacheCommitArgs& args) {
  (void)context;  // copies only
  const RowSet& in = *args.in;
  check_shape(args.latent, DType::u8, in.rows, args.ring.row_bytes, "latent");
  if (args.pending != nullptr) check_shape(args.ab, DType::f32, in.rows, args.ab.cols, "ab");

  for (int s = 0; s < args.segments->count; ++s) {
    const int32_t n = args.accepted[s];
    const int32_t length = args.segments->first[s] + n;
    const int64_t slot = args.segments->slot[s];
    for (int r = in.seg_begin[s]; r < in.seg_begin[s + 1]; ++r) {
      const int32_t p = in.position[r];
      if (p >= length) break;  // rejected
      if (p >= length - args.ring.window)
        std::copy_n(args.latent.u8(r), args.ring.row_bytes,
                    args.ring.base + (slot * args.ring.window + p % args.ring.window) * args.ring.row_bytes);
      if (args.pending != nullptr && length % 2 == 1 && p == length - 1)
        std::copy_n(args.ab.f32(r), args.ab.cols, args.pending + slot * args.ab.cols);
    }
    // The half group of an odd length must be among the rows.
    const int last = in.seg_begin[s + 1] - 1;
    HADAL_CHECK(args.pending == nullptr || n == 0 || length % 2 == 0 ||
                (last >= in.seg_begin[s] && in.position[in.seg_begin[s]] < length && in.position[last] >= length - 1));
  }
}

}  // namespace hadal::reference
