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
  int warp_counts[kThreads / 32];
  unsigned prefix;
  int need;
};

// Unsigned order of these keys is the order of the floats; -inf becomes 0x007fffff.
__device__ __forceinline__ unsigned order_key(float score) {
  const unsigned u = __float_as_uint(score);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
constexpr unsigned kMinusInfinity = 0x007fffffu;

// Scores first .. first + 3, 16 bytes at once where they exist. Rows of the score matrix start at a multiple of 256 bytes,
// block scores anywhere.
__device__ __forceinline__ void load4(const float* scores, int first, int n, float (&v)[4]) {
  if (first + 3 < n && (reinterpret_cast<uintptr_t>(scores) & 15) == 0) {
    const float4 four = *reinterpret_cast<const float4*>(scores + first);
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = first + i < n ? scores[first + i] : -INFINITY;
  }
}

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
    const unsigned mask = (1u << width) - 1;
    for (int base = 4 * threadIdx.x; base < n; base += 4 * kThreads) {
      float v[4];
      load4(scores, base, n, v);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned key = order_key(v[i]);
        if (base + i < n && (above == 32 || (key >> above) == (prefix >> above))) atomicAdd(&shared.bins[(key >> shift) & mask], 1u);
      }
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

  // One pass in order, four neighbours a thread. Counts of a round are packed: larger ones in the upper half.
  int before_above = 0, before_equal = 0;  // in the elements of earlier rounds
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int base = 0; base < n; base += 4 * kThreads) {
    const int first = base + 4 * threadIdx.x;
    float v[4];
    load4(scores, first, n, v);
    unsigned key[4];
    int own = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      key[i] = first + i < n ? order_key(v[i]) : 0;
      own += (key[i] > prefix ? 1 << 16 : 0) + (key[i] == prefix ? 1 : 0);
    }
    int up_to = own;
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(kFullWarp, up_to, offset);
      if (lane >= offset) up_to += other;
    }
    if (lane == 31) shared.warp_counts[warp] = up_to;
    __syncthreads();
    int of_warps = lane < kThreads / 32 ? shared.warp_counts[lane] : 0;
    for (int offset = 1; offset < kThreads / 32; offset *= 2) {
      const int other = __shfl_up_sync(kFullWarp, of_warps, offset);
      if (lane >= offset) of_warps += other;
    }
    const int round = __shfl_sync(kFullWarp, of_warps, kThreads / 32 - 1);
    const int previous = __shfl_sync(kFullWarp, of_warps, (warp + 31) % 32);
    const int warps_before = warp == 0 ? 0 : previous;
    if (own != 0) {
      const int at = warps_before + up_to - own;
      int above = before_above + (at >> 16), equal = before_equal + (at & 0xffff);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (key[i] > prefix) {
          emit(above + min(equal, need), first + i);
          ++above;
        } else if (key[i] == prefix) {
          if (equal < need) emit(above + equal, first + i);
          ++equal;
        }
      }
    }
    before_above += round >> 16;
    before_equal += round & 0xffff;
    __syncthreads();
  }
  return before_above + min(before_equal, need);
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
