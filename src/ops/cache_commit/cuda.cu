#include "ops/cache_commit/cache_commit.h"

#include <algorithm>

#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 4, kMostRows = 32;  // of a block
constexpr int kLayers = 48;                // of a launch: what its parameters have room for

struct Layer {
  const int32_t *position, *segment;
  const uint8_t* latent;
  uint8_t* ring;
  const float* ab;
  float* pending;
  int rows, row_bytes, window, ab_bytes;
};
struct Layers {
  const int32_t *first, *slot, *accepted;
  int rows_each;  // of a block, at most kMostRows
  Layer layer[kLayers];
};
static_assert(sizeof(Layers) <= 4096);

__device__ __forceinline__ void copy_row(void* to, const void* from, int bytes, int lane) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<unsigned>(bytes)) % 16 == 0) {
    for (int i = lane; i < bytes / 16; i += 32) static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
  } else {
    for (int i = lane; i < bytes; i += 32) static_cast<uint8_t*>(to)[i] = static_cast<const uint8_t*>(from)[i];
  }
}

// A block looks at some rows of a layer, every warp at all of them, lane l at row l; a warp then copies every fourth. Rows that
// are rejected, or older than the window, are skipped: of a long prompt nearly all.
__global__ void __launch_bounds__(32 * kWarps) cache_commit_kernel(const __grid_constant__ Layers p) {
  const Layer& layer = p.layer[blockIdx.y];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = blockIdx.x * p.rows_each, row = row0 + lane;
  int position = -1, slot = 0, length = 0;
  wait_for_previous();
  let_next_start();
  if (lane < p.rows_each && row < layer.rows) {
    const int s = layer.segment[row];
    position = layer.position[row];
    length = p.first[s] + p.accepted[s];
    slot = p.slot[s];
  }
  const bool accepted = position >= 0 && position < length;
  const bool kept = accepted && position >= length - layer.window;
  const bool half = accepted && layer.pending != nullptr && length % 2 == 1 && position == length - 1;
  const unsigned all_kept = __ballot_sync(kFullWarp, kept), all_half = __ballot_sync(kFullWarp, half);
  for (int i = warp; i < p.rows_each; i += kWarps) {
    const int64_t of = __shfl_sync(kFullWarp, slot, i), at = __shfl_sync(kFullWarp, position, i);
    if ((all_kept >> i & 1) != 0)
      copy_row(layer.ring + (of * layer.window + at % layer.window) * layer.row_bytes,
               layer.latent + int64_t{row0 + i} * layer.row_bytes, layer.row_bytes, lane);
    if ((all_half >> i & 1) != 0)
      copy_row(reinterpret_cast<uint8_t*>(layer.pending) + of * layer.ab_bytes,
               reinterpret_cast<const uint8_t*>(layer.ab) + int64_t{row0 + i} * layer.ab_bytes, layer.ab_bytes, lane);
  }
}

}  // namespace

void cache_commit(Context& context, const CacheCommitArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  for (size_t begin = 0; begin < args.layers.size(); begin += kLayers) {
    Layers p{args.segments->first, args.segments->slot, args.accepted, 0, {}};
    int most = 0, count = 0;
    for (const CommittedLayer& l : args.layers.subspan(begin, std::min<size_t>(kLayers, args.layers.size() - begin))) {
      HADAL_CUDA_CHECK(l.latent.cols == l.ring.row_bytes && (l.pending == nullptr || l.ab));
      p.layer[count++] = {
          l.in->position, l.in->segment, l.latent.u8(),    l.ring.base,   l.ab ? l.ab.f32() : nullptr,
          l.pending,      l.in->rows,    l.ring.row_bytes, l.ring.window, static_cast<int>(l.ab.cols * sizeof(float))};
      most = std::max(most, l.in->rows);
    }
    if (most == 0) continue;
    p.rows_each = most <= 1024 ? kWarps : kMostRows;
    launch("cache_commit", cache_commit_kernel,
           {.grid = dim3((most + p.rows_each - 1) / p.rows_each, count),
            .block = dim3(32 * kWarps),
            .stream = cuda.stream(),
            .early = true},
           p);
  }
}

}  // namespace hadal::cuda
