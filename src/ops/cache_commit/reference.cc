// Accepted rows into the window rings and the pending halves.      spec 4, 10.8
#include "ops/cache_commit/cache_commit.h"

#include <algorithm>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

namespace {

void commit_layer(const CacheCommitArgs& args, const CommittedLayer& layer) {
  const RowSet& in = *layer.in;
  check_shape(layer.latent, DType::u8, in.rows, layer.ring.row_bytes, "latent");
  if (layer.pending != nullptr) check_shape(layer.ab, DType::f32, in.rows, layer.ab.cols, "ab");

  for (int s = 0; s < args.segments->count; ++s) {
    const int32_t n = args.accepted[s];
    const int32_t length = args.segments->first[s] + n;
    const int64_t slot = args.segments->slot[s];
    for (int r = in.seg_begin[s]; r < in.seg_begin[s + 1]; ++r) {
      const int32_t p = in.position[r];
      if (p >= length) break;  // rejected
      if (p >= length - layer.ring.window)
        std::copy_n(layer.latent.u8(r), layer.ring.row_bytes,
                    layer.ring.base + (slot * layer.ring.window + p % layer.ring.window) * layer.ring.row_bytes);
      if (layer.pending != nullptr && length % 2 == 1 && p == length - 1)
        std::copy_n(layer.ab.f32(r), layer.ab.cols, layer.pending + slot * layer.ab.cols);
    }
    // The half group of an odd length must be among the rows.
    const int last = in.seg_begin[s + 1] - 1;
    HADAL_CHECK(layer.pending == nullptr || n == 0 || length % 2 == 0 ||
                (last >= in.seg_begin[s] && in.position[in.seg_begin[s]] < length && in.position[last] >= length - 1));
  }
}

}  // namespace

void cache_commit(Context& context, const CacheCommitArgs& args) {
  (void)context;  // copies only
  for (const CommittedLayer& layer : args.layers) commit_layer(args, layer);
}

}  // namespace hadal::reference
