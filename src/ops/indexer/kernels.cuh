// The two halves of the CUDA indexer: scores of a chunk of rows into a matrix, and the exact selection from it.
#pragma once

#include "ops/cuda/context.h"
#include "ops/indexer/indexer.h"

namespace hadal::cuda {

// Entries of a row's list: every visible group, or the groups of its candidate blocks.
struct IndexLists {
  RowSet rows;
  Segments segments;
  PagedRows keys;
  int ratio;
  bool filter;
  int block_size;
  int max_blocks;  // columns of candidate_blocks
  const int32_t* candidate_blocks;
  const int32_t* candidate_count;

#ifdef __CUDACC__
  __device__ __forceinline__ int visible(int row) const { return (rows.position[row] + 1) / ratio; }
  // Number of candidate blocks, or -1 when the list is all visible groups.
  __device__ __forceinline__ int blocks(int row) const { return filter ? candidate_count[rows.step_row[row]] : -1; }
  __device__ __forceinline__ int length(int row) const {
    const int count = blocks(row);
    return count < 0 ? visible(row) : count * block_size;
  }
  // The group of entry e; may lie past the visible ones in the last block.
  __device__ __forceinline__ int group(int row, int count, int e) const {
    if (count < 0) return e;
    return candidate_blocks[int64_t{rows.step_row[row]} * max_blocks + e / block_size] * block_size + e % block_size;
  }
#endif
};

struct ScoreProblem {
  IndexLists lists;
  int first_row, row_count;  // the chunk
  int heads, index_dim;
  const uint16_t* query;       // bf16 [rows, heads * index_dim], rounded by Q2
  const float* head_weights;   // [rows, heads rounded up to 32], zero past the end
  float* scores;               // [row_count, stride]; written for the entries of every list, -inf where not visible
  int64_t stride;
  int longest;  // no list of the step is longer
};
void launch_index_scores(CudaContext& context, const ScoreProblem& problem);

// The same scores on wgmma, for many rows of a request over all visible groups. Takes queries whose channels are in the
// order of wide_channel(); 32 heads of 128 channels.
void launch_index_scores_wide(CudaContext& context, const ScoreProblem& problem);
inline bool takes_wide_scores(int heads, int index_dim) { return heads == 32 && index_dim == 128; }
#ifdef __CUDACC__
// Where channel c of a block of 32 goes: keys then give their operands from eight neighbouring codes a lane.
__device__ __forceinline__ int wide_channel(int c) { return (c & 4) * 4 + (c & 2) * 4 + c / 8 * 2 + (c & 1); }
#endif

struct SelectProblem {
  IndexLists lists;
  int first_row, row_count;
  const float* scores;
  int64_t stride;
  int topk;
  int32_t* selected;  // [step rows, topk] physical rows
  int32_t* count;     // [step rows]
  // Candidate blocks, when published.
  int32_t* candidate_blocks = nullptr;
  int32_t* candidate_count = nullptr;
  float* block_scores = nullptr;  // scratch [row_count, block_stride]
  int64_t block_stride = 0;
};
void launch_index_select(CudaContext& context, const SelectProblem& problem);

}  // namespace hadal::cuda
