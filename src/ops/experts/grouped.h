// The matrix path of the experts: rows grouped by expert, both matrix products in one launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace hadal::cuda {

// Rows of one expert that one tile covers. Tiles are cut to fit: an expert with 264 rows gets two of 136 and 128.
inline constexpr int kMaxTileRows = 152;
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
  TokenTile* tiles = nullptr;   // [tile_capacity]
  int* tile_count = nullptr;    // [1]
  int* next = nullptr;          // [1] work counter
  int* done = nullptr;          // [tile_capacity] finished pieces of the first product
  int* count = nullptr;         // scratch of the grouping
  int row_capacity = 0;
  int tile_capacity = 0;
  int max_tile_rows = 0;  // kMaxTileRows or kMaxNarrowTileRows: also says which kernel runs
};

// Bytes of the arrays above, and the arrays cut from one block of that size.
// `experts` is the number of all experts, also those elsewhere: the expected rows of one decide the tile width.
size_t row_plan_bytes(int rows, int topk, int slots, int experts);
RowPlan row_plan(void* block, int rows, int topk, int slots, int experts);

// Groups rows by expert. slot_of[id] is the local slot of an expert or -1. Deterministic up to the order of rows inside
// an expert, which no result depends on.
void plan_rows(const RowPlan& plan, const int32_t* ids, const float* weights, int rows, int topk,
               const int32_t* slot_of, int slots, cudaStream_t stream);
// Every row goes to slot 0 with weight 1: the shared expert.
void plan_all_rows(const RowPlan& plan, int rows, cudaStream_t stream);

struct PackedPointers {
  const uint8_t* gate_up;
  const uint8_t* down;
};

struct GroupedArgs {
  RowPlan plan;
  const PackedPointers* weights = nullptr;  // [slots], device
  const uint16_t* x = nullptr;              // bf16 [rows, d]
  uint16_t* activated = nullptr;            // bf16 [row_capacity, width]
  uint16_t* out = nullptr;                  // bf16 [row_capacity, d]
  int d = 0;
  int width = 0;
  float limit = 0;
  bool fp8 = false;                // weight format: FP8 blocks, else MXFP4
  bool round_activations = false;  // Q1 on the input of the second product (`official`)
};
void grouped_feed_forward(const GroupedArgs& args, int multiprocessors, cudaStream_t stream);

// y[r] = bf16(sum over k ascending of out[pair_row[r, k]] in fp32 + shared_out[r]). Rows of experts that are not local
// are not read.
void combine_rows(const int* pair_row, const uint16_t* out, const uint16_t* shared_out, uint16_t* y, int rows, int topk,
                  int d, cudaStream_t stream);

}  // namespace hadal::cuda
