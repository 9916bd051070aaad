// Exact top-k of a row of scores, lower index first among equals, listed in ascending order. One CTA a row. What is here
// serves any row; select_staged.cu serves those whose granules fit in shared memory.
#include "ops/indexer/select.cuh"

#include "ops/cuda/errors.h"

namespace hadal::cuda {
namespace {

__global__ void __launch_bounds__(kSelectThreads) select_kernel(const __grid_constant__ SelectProblem p) {
  __shared__ SelectShared shared;
  const int row = p.first_row + blockIdx.x;
  const int64_t step_row = p.lists.rows.step_row[row];
  const int segment = p.lists.rows.segment[row];
  const int blocks = p.lists.blocks(row), length = p.lists.length(row);
  int32_t* out = p.selected + step_row * p.topk;
  const auto emit = [&](int place, int e) {
    out[place] = static_cast<int32_t>(
        physical_row(p.lists.segments, segment, p.lists.keys.page_rows, p.lists.group(row, blocks, e)));
  };
  const float* scores = p.scores + blockIdx.x * p.stride;
  int count;
  if (p.best == nullptr) {
    count = select_largest(scores, length, p.topk, shared, emit);
  } else {
    const RowKeys maxima{p.best + blockIdx.x * (p.stride / p.granule), (length + p.granule - 1) / p.granule};
    count = select_by_granules(scores, length, maxima, p.granule, p.topk, shared, emit);
  }
  for (int i = count + threadIdx.x; i < p.topk; i += kSelectThreads) out[i] = -1;
  if (threadIdx.x == 0) p.count[step_row] = count;
}

// Candidate blocks: the largest score of each block; the newest block always wins.
__global__ void __launch_bounds__(kSelectThreads) publish_kernel(const __grid_constant__ SelectProblem p) {
  __shared__ SelectShared shared;
  const int row = p.first_row + blockIdx.x;
  const int64_t step_row = p.lists.rows.step_row[row];
  const int visible = p.lists.visible(row), size = p.lists.block_size;
  const int blocks = (visible + size - 1) / size;
  int32_t* out = p.candidate_blocks + step_row * p.lists.max_blocks;
  if (blocks <= p.lists.max_blocks) return finish_candidates(p, step_row, 0, true);
  const float* scores = p.scores + blockIdx.x * p.stride;
  float* best = p.block_scores + blockIdx.x * p.block_stride;
  for (int b = threadIdx.x; b < blocks; b += kSelectThreads) {
    float top = -INFINITY;
    for (int e = b * size; e < min(visible, (b + 1) * size); ++e) top = fmaxf(top, scores[e]);
    best[b] = b == blocks - 1 ? INFINITY : top;
  }
  __syncthreads();
  finish_candidates(p, step_row,
                    select_largest(best, blocks, p.lists.max_blocks, shared, [&](int place, int b) { out[place] = b; }),
                    false);
}

}  // namespace

void launch_index_select(cudaStream_t stream, const SelectProblem& p) {
  if (select_staged_takes(p)) return launch_select_staged(stream, p);
  select_kernel<<<p.row_count, kSelectThreads, 0, stream>>>(p);
  HADAL_CUDA_LAUNCHED("index selection");
  if (p.candidate_blocks == nullptr) return;
  publish_kernel<<<p.row_count, kSelectThreads, 0, stream>>>(p);
  HADAL_CUDA_LAUNCHED("candidate blocks");
}

}  // namespace hadal::cuda
