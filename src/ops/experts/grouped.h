// The matrix path of the experts: rows grouped by expert, both matrix products in one launch.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/fp8_rows.h"

namespace hadal::cuda {

// Rows of one expert that one tile covers. Tiles are cut to fit: an expert with 264 rows gets two of 136 and 128.
inline constexpr int kMaxTileRows = 152;
// The same with FP8 rows, whose tiles have half as many weight rows.
inline constexpr int kMaxTileRows8 = 288;
// The most rows of a tile in decode steps. Which kernel runs does not change a row's sums.
inline constexpr int kMaxNarrowTileRows = 64;

struct TokenTile {
  int slot;   // which local expert
  int row0;   // first grouped row, a multiple of 8
  int n;      // rows, a multiple of 8
  int first;  // the first token tile of this expert ...
  int count;  // ... and how many it has
};

// Device arrays of a step's grouping. Grouped rows are those of slot 0, then slot 1, ..., each padded to a multiple of 8
// with rows of weight 0.
struct RowPlan {
  int* row_token = nullptr;     // [row_capacity] row of x
  float* row_weight = nullptr;  // [row_capacity]
  int* pair_row = nullptr;      // [rows * topk] grouped row of each routing choice, -1 where the expert is not local
  int2* pair_tile = nullptr;    // [rows * topk] first row and rows of its tile; prefill steps with rows to round
  TokenTile* tiles = nullptr;   // [tile_capacity]
  int* tile_count = nullptr;    // [1]
  int* next = nullptr;          // [1] pieces taken beyond the first of every block
  int* done = nullptr;          // [tile_capacity] finished pieces of the first product
  int* rounded = nullptr;       // [tile_capacity] FP8: parts of the tile's activations that are rounded
  int row_capacity = 0;
  int tile_capacity = 0;
  int max_tile_rows = 0;  // also says which kernel runs
};

// Bytes of the arrays above, and the arrays cut from one block of that size.
// `experts` is the number of all experts, also those elsewhere: the expected rows of one decide the tile width.
size_t row_plan_bytes(int rows, int topk, int slots, int experts, bool fp8);
RowPlan row_plan(void* block, int rows, int topk, int slots, int experts, bool fp8);

// ---- FP8 rows (numerics fp8) ---------------------------------------------------------------------------------------
// E4M3 codes with one power-of-two scale a row (Q5). The rows of a token tile lie as the matrix kernel has them in shared
// memory, so that a stage of it is one contiguous copy: for each group of 128 channels n rows of 128 bytes, then the next group.
// Channel 32 l + 8 s + i of a group is byte 32 s + 16 (i / 4) + 4 l + i % 4 (codec.cuh), and 16-byte chunk c of a row lies at
// c ^ (row % 8). A row that goes to six experts is stored six times. Scales, which bf16 holds, are those of the grouped rows.
struct Fp8Tile {
  int row0, n, groups;
  __host__ __device__ size_t code(int group, int row) const {  // byte of the row's first channel, before the swizzle
    return (static_cast<size_t>(row0) * groups + group * n + row) * 128;
  }
};
inline size_t fp8_codes(const RowPlan& plan, int channels) { return static_cast<size_t>(plan.row_capacity) * channels; }
struct RowsToRound {
  const uint16_t* x = nullptr;  // bf16 [rows, d], d a multiple of 128, at most 16,384
  int d = 0;
  uint8_t* codes = nullptr;    // fp8_codes
  uint16_t* scales = nullptr;  // bf16 [row_capacity]
  Fp8Rows shared;              // unless empty: Q4 of the rows in their own order, for the shared expert
};

// Groups rows by expert. slot_of[id] is the local slot of an expert or -1. Deterministic up to the order of rows inside
// an expert, which no result depends on. `to_round`, when it has rows, is rounded and laid out by expert.
void plan_rows(const RowPlan& plan, const int32_t* ids, const float* weights, int rows, int topk,
               const int32_t* slot_of, int slots, const RowsToRound& to_round, cudaStream_t stream);

struct PackedPointers {
  const uint8_t* gate_up;
  const uint8_t* down;
};

struct GroupedArgs {
  RowPlan plan;
  const PackedPointers* weights = nullptr;  // [slots], device, packed for these rows
  const void* x = nullptr;                  // bf16 [rows, d], or E4M3 codes by expert
  const uint16_t* x_scale = nullptr;        // FP8: bf16 [row_capacity]
  uint16_t* activated = nullptr;            // bf16 [row_capacity, width]
  uint8_t* activated_codes = nullptr;       // FP8: the same rounded, by expert
  uint16_t* activated_scale = nullptr;      // FP8: bf16 [row_capacity]
  uint16_t* out = nullptr;                  // bf16 [row_capacity, d]
  int d = 0;
  int width = 0;
  float limit = 0;
  bool fp8 = false;                // rows are FP8
  bool round_activations = false;  // bf16 rows: Q1 on the input of the second product (`official`)
};
void grouped_feed_forward(const GroupedArgs& args, int multiprocessors, cudaStream_t stream);

// ---- up to 8 rows, FP8 -----------------------------------------------------------------------------------------------
// The same sums in one launch that groups and rounds rows itself (grouped_fp8_few.cu).
inline constexpr int kFewExpertRows = 8, kFewChoices = 64;
struct FewExpertsArgs {
  GroupedArgs grouped;  // x: bf16 [rows, d]; of the plan pair_row, and `done` and `next` in `counters`
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  const PackedPointers* experts = nullptr;  // [count] by id, without addresses where an expert is not local
  int count = 0;
  int rows = 0;
  int topk = 0;
  int* counters = nullptr;  // [kFewCounters], zeros before a launch and again behind it
};
inline constexpr int kFewCounters = kFewChoices + 2;
bool few_experts_take(int rows, int topk, int count, int d, int width);
// Activations and outputs of a choice lie in row 8 i + r for row r of the step and the i-th expert that is chosen: this many.
inline int few_expert_rows(int rows, int topk) { return kFewExpertRows * rows * topk; }
void few_experts(FewExpertsArgs args, int multiprocessors, cudaStream_t stream);

// y[r] = bf16(sum over k ascending of out[pair_row[r, k]] in fp32 + shared_out[r]). Rows of experts that are not local
// are not read.
void combine_rows(const int* pair_row, const uint16_t* out, const uint16_t* shared_out, uint16_t* y, int rows, int topk,
                  int d, cudaStream_t stream);

}  // namespace hadal::cuda
