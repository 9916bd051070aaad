// Expands the packed rows that a step's queries may see.
// A warp expands several rows at a time, so that their loads are in flight together: finding a row takes a chain of loads.
#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/sparse_attention/matrix.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 8, kWarpRows = 8, kTogether = 4;

// Packed rows with kIsEntry; 0 stands for zeros.
__device__ __forceinline__ uint64_t shared_source(const AttentionProblem& p, const ExpandedRows& e, int i) {
  if (i == 0) return 0;
  const auto& a = p.args;
  if (i >= e.first_ring) {
    const int segment = (i - e.first_ring) / a.ring.window, slot = (i - e.first_ring) % a.ring.window;
    return reinterpret_cast<uint64_t>(
        a.ring.base + (static_cast<int64_t>(p.segments.slot[segment]) * a.ring.window + slot) * a.ring.row_bytes);
  }
  if (i >= e.first_latent)
    return reinterpret_cast<uint64_t>(static_cast<const uint8_t*>(a.latent.data) +
                                      int64_t{i - e.first_latent} * a.latent.cols);
  const int at = (i - 1) >> e.page_shift, row = (i - 1) & ((1 << e.page_shift) - 1);
  const int page = p.segments.page_table[at];  // [segments, page_stride] as the expanded rows have them
  if (page < 0) return 0;
  if (row == 0) e.page_begin[page] = i;  // of a page of two requests either copy serves
  return entry_address(p, (static_cast<int64_t>(page) << e.page_shift) + row);
}

__global__ void __launch_bounds__(32 * kWarps)
    expand_kernel(const __grid_constant__ AttentionProblem p, const __grid_constant__ ExpandedRows e) {
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % 32;
  const int first = e.begin + (blockIdx.x * kWarps + threadIdx.x / 32) * kWarpRows;
  uint64_t own = 0;  // lane i finds row first + i
  if (lane < kWarpRows && first + lane < e.count) own = shared_source(p, e, first + lane);
#pragma unroll 1
  for (int begin = 0; begin < kWarpRows; begin += kTogether) {
    uint64_t source[kTogether];
    PackedChunk chunk[kTogether][2];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      source[i] = __shfl_sync(kFullWarp, own, begin + i);
      // Zeros read some row, so that no branch keeps loads apart.
      const uint8_t* row = source[i] != 0 ? reinterpret_cast<const uint8_t*>(source[i] & ~kIsEntry) : p.args.ring.base;
#pragma unroll
      for (int h = 0; h < 2; ++h) chunk[i][h] = load_chunk(row, (source[i] & kIsEntry) != 0, lane + 32 * h);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + begin + i >= e.count) return;
      auto* out = reinterpret_cast<uint4*>(e.rows + static_cast<int64_t>(first + begin + i) * kExpandedBytes);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        out[lane + 32 * h] =
            source[i] == 0 ? make_uint4(0, 0, 0, 0) : expand_chunk(chunk[i][h], (source[i] & kIsEntry) != 0);
    }
  }
}

}  // namespace

void launch_expand(const AttentionProblem& p, const ExpandedRows& e, cudaStream_t stream) {
  constexpr int kThreads = 32 * kWarps, kBlockRows = kWarps * kWarpRows;
  const auto row_blocks = static_cast<int>((e.count - e.begin + kBlockRows - 1) / kBlockRows);
  launch("expand_kernel", expand_kernel,
         {.grid = dim3(row_blocks), .block = dim3(kThreads), .stream = stream, .early = true}, p, e);
}

}  // namespace hadal::cuda
