#include "ops/cache_commit/cache_commit.h"
#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"

namespace hadal::cuda {
namespace {

// One warp a row; rows that are rejected, or older than the window, are skipped.
__global__ void __launch_bounds__(128)
    cache_commit_kernel(RowSet in, Segments segments, const int32_t* accepted, const uint8_t* latent, WindowRing ring,
                        const float* ab, int ab_cols, float* pending) {
  wait_for_previous();
  let_next_start();
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= in.rows) return;
  const int s = in.segment[row], p = in.position[row];
  const int length = segments.first[s] + accepted[s];
  const int64_t slot = segments.slot[s];
  if (p >= length) return;
  if (p >= length - ring.window) {
    const uint8_t* from = latent + int64_t{row} * ring.row_bytes;
    uint8_t* to = ring.base + (slot * ring.window + p % ring.window) * ring.row_bytes;
    for (int i = lane; i < ring.row_bytes; i += 32) to[i] = from[i];
  }
  if (pending != nullptr && length % 2 == 1 && p == length - 1)
    for (int i = lane; i < ab_cols; i += 32) pending[slot * ab_cols + i] = ab[int64_t{row} * ab_cols + i];
}

}  // namespace

void cache_commit(Context& context, const CacheCommitArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.in->rows == 0) return;
  HADAL_CUDA_CHECK(args.latent.cols == args.ring.row_bytes && (args.pending == nullptr || args.ab));
  launch("cache_commit", cache_commit_kernel,
         {.grid = dim3((args.in->rows + 3) / 4), .block = dim3(128), .stream = cuda.stream(), .early = true}, *args.in,
         *args.segments, args.accepted, args.latent.u8(), args.ring, args.ab ? args.ab.f32() : nullptr,
         static_cast<int>(args.ab.cols), args.pending);
}

}  // namespace hadal::cuda
