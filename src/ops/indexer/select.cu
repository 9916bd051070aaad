// Exact top-k of a row of scores, lower index first among equals, listed in ascending order. One CTA a row: three passes
// of histograms find the k-th largest value, one pass lists what lies above it and as many of its equals as are needed.
#include <climits>
#include <cmath>

#include "ops/cuda/errors.h"
#include "ops/cuda/row.cuh"
#include "ops/indexer/kernels.cuh"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 512, kBins = 2048;

struct SelectShared {
  unsigned bins[kBins];
  int warp_above[kThreads / 32], warp_equal[kThreads / 32];
  unsigned prefix;
  int need;
};

// Unsigned order of these keys is the order of the floats; -inf becomes 0x007fffff.
__device__ __forceinline__ unsigned order_key(float score) {
  const unsigned u = __float_as_uint(score);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
constexpr unsigned kMinusInfinity = 0x007fffffu;

// Calls emit(place, index) for the chosen indices, in ascending order; returns their number to every thread.
template <typename Emit>
__device__ int select_largest(const float* scores, int n, int k, SelectShared& shared, Emit emit) {
  // The k-th largest key, digit by digit. `need` counts how many of the elements with the found prefix still belong to
  // the k largest. With fewer than k finite scores the search ends at a key of -inf or below: take all finite ones.
  unsigned prefix = 0;
  int need = k, shift = 32;
  constexpr int kDigits[3] = {11, 11, 10};
  for (int digit = 0; digit < 3; ++digit) {
    const int width = kDigits[digit];
    const int above = shift;
    shift -= width;
    for (int i = threadIdx.x; i < kBins; i += kThreads) shared.bins[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const unsigned key = order_key(scores[i]);
      if (above == 32 || (key >> above) == (prefix >> above)) atomicAdd(&shared.bins[(key >> shift) & ((1u << width) - 1)], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      // One warp walks from the largest bin down: a lane sums bins / 32 neighbouring ones.
      const int lane = threadIdx.x, bins = 1 << width, each = bins / 32;
      const int top = bins - 1 - lane * each;
      int own = 0;
      for (int i = 0; i < each; ++i) own += static_cast<int>(shared.bins[top - i]);
      int before = own;
      for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(kFullWarp, before, offset);
        if (lane >= offset) before += other;
      }
      before -= own;  // elements in larger bins than this lane's
      if (before < need && before + own >= need) {
        int left = need - before, bin = top;
        while (left > static_cast<int>(shared.bins[bin])) left -= static_cast<int>(shared.bins[bin--]);
        shared.prefix = prefix | (static_cast<unsigned>(bin) << shift);
        shared.need = left;
      }
      const int total = __shfl_sync(kFullWarp, before + own, 31);
      if (lane == 0 && total < need) shared.prefix = 0, shared.need = INT_MAX;  // fewer than k elements
    }
    __syncthreads();
    prefix = shared.prefix;
    need = shared.need;
    __syncthreads();
    if (need == INT_MAX) break;
  }
  if (prefix <= kMinusInfinity) prefix = kMinusInfinity, need = 0;

  int above_before = 0, equal_before = 0;  // in the elements of earlier rounds
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int base = 0; base < n; base += kThreads) {
    const int i = base + threadIdx.x;
    const unsigned key = i < n ? order_key(scores[i]) : 0;
    const unsigned above = __ballot_sync(kFullWarp, key > prefix), equal = __ballot_sync(kFullWarp, key == prefix);
    if (lane == 0) shared.warp_above[warp] = __popc(above), shared.warp_equal[warp] = __popc(equal);
    __syncthreads();
    int a = above_before, q = equal_before;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w == warp) {
        const unsigned lower = (1u << lane) - 1;
        const int my_above = a + __popc(above & lower), my_equal = q + __popc(equal & lower);
        if (key > prefix || (key == prefix && my_equal < need)) emit(my_above + min(my_equal, need), i);
      }
      a += shared.warp_above[w];
      q += shared.warp_equal[w];
    }
    above_before = a;
    equal_before = q;
    __syncthreads();
  }
  return above_before + min(equal_before, need);
}

__global__ void __launch_bounds__(kThreads) select_kernel(const SelectProblem p) {
  __shared__ SelectShared shared;
  const int row = p.first_row + blockIdx.x;
  const int64_t step_row = p.lists.rows.step_row[row];
  const int segment = p.lists.rows.segment[row];
  const int blocks = p.lists.blocks(row);
  int32_t* out = p.selected + step_row * p.topk;
  const int count = select_largest(p.scores + blockIdx.x * p.stride, p.lists.length(row), p.topk, shared, [&](int place, int e) {
    out[place] = static_cast<int32_t>(
        physical_row(p.lists.segments, segment, p.lists.keys.page_rows, p.lists.group(row, blocks, e)));
  });
  for (int i = count + threadIdx.x; i < p.topk; i += kThreads) out[i] = -1;
  if (threadIdx.x == 0) p.count[step_row] = count;
}

// Candidate blocks: the largest score of each block; the newest block always wins.
__global__ void __launch_bounds__(kThreads) publish_kernel(const SelectProblem p) {
  __shared__ SelectShared shared;
  const int row = p.first_row + blockIdx.x;
  const int64_t step_row = p.lists.rows.step_row[row];
  const int visible = p.lists.visible(row), size = p.lists.block_size;
  const int blocks = (visible + size - 1) / size;
  int32_t* out = p.candidate_blocks + step_row * p.lists.max_blocks;
  if (blocks <= p.lists.max_blocks) {
    for (int i = threadIdx.x; i < p.lists.max_blocks; i += kThreads) out[i] = -1;
    if (threadIdx.x == 0) p.candidate_count[step_row] = -1;
    return;
  }
  const float* scores = p.scores + blockIdx.x * p.stride;
  float* best = p.block_scores + blockIdx.x * p.block_stride;
  for (int b = threadIdx.x; b < blocks; b += kThreads) {
    float top = -INFINITY;
    for (int e = b * size; e < min(visible, (b + 1) * size); ++e) top = fmaxf(top, scores[e]);
    best[b] = b == blocks - 1 ? INFINITY : top;
  }
  __syncthreads();
  const int count = select_largest(best, blocks, p.lists.max_blocks, shared, [&](int place, int b) { out[place] = b; });
  for (int i = count + threadIdx.x; i < p.lists.max_blocks; i += kThreads) out[i] = -1;
  if (threadIdx.x == 0) p.candidate_count[step_row] = count;
}

}  // namespace

void launch_index_select(CudaContext& context, const SelectProblem& p) {
  select_kernel<<<p.row_count, kThreads, 0, context.stream()>>>(p);
  HADAL_CUDA_LAUNCHED("index selection");
  if (p.candidate_blocks == nullptr) return;
  publish_kernel<<<p.row_count, kThreads, 0, context.stream()>>>(p);
  HADAL_CUDA_LAUNCHED("candidate blocks");
}

}  // namespace hadal::cuda
