// The parts of the CUDA indexer: queries, scores of a chunk of rows into a matrix, and the exact selection from it.
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

// ---- 32 heads of 128 channels: queries as 8-bit integers ----------------------------------------------------------------
// int8.cuh has the layout of `codes` and the meaning of the rest. Rows past the last are read, and their results dropped.
inline constexpr int kInt8Heads = 32, kInt8Dim = 128, kInt8RowBytes = kInt8Heads * kInt8Dim;
inline constexpr int kWeightStride = 36;  // 32 head weights, then whether the row needs the careful path
inline constexpr int kInt8TileRows = 4, kInt8TileBytes = kInt8TileRows * kInt8RowBytes;
inline constexpr int kPaddingRows = kInt8TileRows - 1;
struct Int8Queries {
  uint8_t* codes;      // [rows + padding, 32 * 128], four rows together
  float* weights;      // [rows + padding, kWeightStride]
  uint32_t* relative;  // [rows, 32] a scale byte for each block of 32 channels
  uint8_t* fold;       // [rows, 32] the scale that is in the weight
};
// q: bf16 [rows, 32 * 128] before rotation; projected: bf16 [rows, 32].
void launch_int8_queries(cudaStream_t stream, const uint16_t* q, const uint16_t* projected, int rows,
                         const int32_t* position, const Rope& rope, const Int8Queries& out, float* trace);

// ---- scores ------------------------------------------------------------------------------------------------------------
struct ScoreProblem {
  IndexLists lists;
  int first_row, row_count;  // the chunk
  int heads, index_dim;
  const uint16_t* query;      // bf16 [rows, heads * index_dim], rounded by Q2; general kernel
  const float* head_weights;  // [rows, heads rounded up to 32], zero past the end; general kernel
  Int8Queries int8;           // the other two kernels
  float* scores;              // [row_count, stride]; written for the entries of every list, -inf where not visible
  int64_t stride;
  float* best;  // [row_count, stride / granule] the largest score of each `granule` neighbouring entries; int8 kernels
  int granule;
  int longest;  // no list of the step is longer
  bool official;
};
// Any number of heads; bf16 operands.
void launch_index_scores(cudaStream_t stream, const ScoreProblem& problem);

// 32 heads of 128 channels. Both kernels give the same bits. `wide` is for many rows of a request over all visible groups
// (granule 8 or 16), `narrow` for any lists with granule 8.
bool takes_int8_scores(const IndexerArgs& args);
void launch_index_scores_wide(cudaStream_t stream, const ScoreProblem& problem);
void launch_index_scores_narrow(cudaStream_t stream, const ScoreProblem& problem);

// ---- selection ---------------------------------------------------------------------------------------------------------
struct SelectProblem {
  IndexLists lists;
  int first_row, row_count;
  const float* scores;
  int64_t stride;
  const float* best = nullptr;  // of ScoreProblem, or null
  int granule = 0;
  int topk;
  int32_t* selected;  // [step rows, topk] physical rows
  int32_t* count;     // [step rows]
  // Candidate blocks, when published.
  int32_t* candidate_blocks = nullptr;
  int32_t* candidate_count = nullptr;
  float* block_scores = nullptr;  // scratch [row_count, block_stride]
  int64_t block_stride = 0;
};
void launch_index_select(cudaStream_t stream, const SelectProblem& problem);
// Rows whose granules fit in shared memory; launch_index_select uses it where it may.
bool select_staged_takes(const SelectProblem& problem);
void launch_select_staged(cudaStream_t stream, const SelectProblem& problem);

}  // namespace hadal::cuda
