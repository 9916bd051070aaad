#include "ops/cache_commit/cache_commit.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {

// At most a window of rows a segment: copies too small for threads.
void cache_commit(Context& any, const CacheCommitArgs& args) {
  cpu_context(any);
  const RowSet& in = *args.in;
  check_tensor(args.latent, DType::u8, in.rows, args.ring.row_bytes, "latent");
  if (args.pending != nullptr) check_tensor(args.ab, DType::f32, in.rows, args.ab.cols, "ab");

  for (int s = 0; s < args.segments->count; ++s) {
    const int begin = in.seg_begin[s], end = in.seg_begin[s + 1];
    if (begin == end) continue;
    const int64_t slot = args.segments->slot[s];
    const int32_t length = args.segments->first[s] + args.accepted[s], first = in.position[begin];
    const int stop = std::min(end, begin + std::max(0, length - first));  // rows of accepted positions
    for (int r = std::max(begin, stop - args.ring.window); r < stop; ++r)
      std::copy_n(args.latent.u8(r), args.ring.row_bytes,
                  args.ring.base + (slot * args.ring.window + in.position[r] % args.ring.window) * args.ring.row_bytes);
    if (args.pending == nullptr || args.accepted[s] == 0 || length % 2 == 0) continue;
    HADAL_CHECK(stop > begin && in.position[stop - 1] == length - 1);  // the half group is among the rows
    std::copy_n(args.ab.f32(stop - 1), args.ab.cols, args.pending + slot * args.ab.cols);
  }
}

}  // namespace hadal::cpu
