#include "ops/cache_commit/cache_commit.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {

namespace {

void commit_layer(const CacheCommitArgs& args, const CommittedLayer& layer) {
  const RowSet& in = *layer.in;
  check_tensor(layer.latent, DType::u8, in.rows, layer.ring.row_bytes, "latent");
  if (layer.pending != nullptr) check_tensor(layer.ab, DType::f32, in.rows, layer.ab.cols, "ab");

  for (int s = 0; s < args.segments->count; ++s) {
    const int begin = in.seg_begin[s], end = in.seg_begin[s + 1];
    if (begin == end) continue;
    const int64_t slot = args.segments->slot[s];
    const int32_t length = args.segments->first[s] + args.accepted[s], first = in.position[begin];
    const int stop = std::min(end, begin + std::max(0, length - first));  // rows of accepted positions
    for (int r = std::max(begin, stop - layer.ring.window); r < stop; ++r)
      std::copy_n(
          layer.latent.u8(r), layer.ring.row_bytes,
          layer.ring.base + (slot * layer.ring.window + in.position[r] % layer.ring.window) * layer.ring.row_bytes);
    if (layer.pending == nullptr || args.accepted[s] == 0 || length % 2 == 0) continue;
    HADAL_CHECK(stop > begin && in.position[stop - 1] == length - 1);  // the half group is among the rows
    std::copy_n(layer.ab.f32(stop - 1), layer.ab.cols, layer.pending + slot * layer.ab.cols);
  }
}

}  // namespace

// At most a window of rows a segment: copies too small for threads.
void cache_commit(Context& any, const CacheCommitArgs& args) {
  cpu_context(any);
  for (const CommittedLayer& layer : args.layers) commit_layer(args, layer);
}

}  // namespace hadal::cpu
