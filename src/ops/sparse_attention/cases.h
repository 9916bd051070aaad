// Cases of sparse attention.
#pragma once

#include <vector>

#include "ops/testing/step.h"

namespace hadal::testing {

struct SparseAttentionCase {
  const char* name;
  std::vector<StepSegment> segments;  // latents of the `in` rows, queries of the kept ones
  int heads = 4, head_dim = 64, rope_dim = 16, window = 8;
  int in_rows = -1;                 // of every segment the last rows are in `in`; -1: all of them
  std::vector<int32_t> floor = {};  // empty: none
  bool bidirectional = false;
  int ratio = 0, topk = 0;      // compressed entries; ratio 0: window only
  double q_gain = 1, sink = 0;  // deviation of the scores; mean of the sinks
};
inline const std::vector<SparseAttentionCase>& sparse_attention_list() {
  static const std::vector<SparseAttentionCase> list = {
      {.name = "no rows", .segments = {{5, 0}}},
      {.name = "position 0", .segments = {{0, 1}}},
      {.name = "ring partly filled", .segments = {{3, 2}}},
      {.name = "edges of the window", .segments = {{6, 1}, {7, 1}, {8, 1}, {9, 1}, {16, 1}}},
      {.name = "a chunk longer than the window", .segments = {{0, 21}}},
      {.name = "a chunk behind a ring", .segments = {{13, 11}, {5, 4}}},
      {.name = "queries for a suffix", .segments = {{20, 9, 3}, {0, 12, 1}, {4, 2, 0}, {9, 1, 1}}},
      {.name = "latents of a suffix only", .segments = {{0, 40, 5}, {2, 20, 1}}, .in_rows = 12},
      {.name = "floor", .segments = {{20, 4}, {3, 10, 6}, {9, 1}}, .floor = {18, 8, 0}},
      {.name = "draft rows, full ring", .segments = {{30, 5}}, .bidirectional = true},
      {.name = "draft rows, young requests", .segments = {{3, 5}, {0, 5}, {8, 5}, {9, 2}}, .bidirectional = true},
      {.name = "entries, ratio 2", .segments = {{0, 9}, {17, 3}, {1, 1}}, .ratio = 2, .topk = 4},
      {.name = "entries, ratio 1", .segments = {{0, 9}, {33, 2}, {16, 1, 1}}, .ratio = 1, .topk = 12},
      {.name = "entries of a suffix", .segments = {{5, 20, 4}, {40, 1}}, .ratio = 2, .topk = 8},
      {.name = "sharp scores", .segments = {{30, 6}}, .ratio = 1, .topk = 16, .q_gain = 6},
      {.name = "sink takes nearly all", .segments = {{12, 3}}, .ratio = 2, .topk = 4, .sink = 15},
      {.name = "sink far below", .segments = {{12, 3}}, .sink = -60},
      {.name = "one head, odd counts",
       .segments = {{11, 3}},
       .heads = 1,
       .head_dim = 96,
       .rope_dim = 32,
       .window = 7,
       .ratio = 1,
       .topk = 5},
      {.name = "release head",
       .segments = {{700, 2}, {127, 1}},
       .heads = 8,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 128,
       .ratio = 1,
       .topk = 512},
      {.name = "release head, draft",
       .segments = {{300, 5}},
       .heads = 8,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 128,
       .bidirectional = true},
      // The release's heads, which a GPU has kernels for: keys of each query, rows that queries share, many requests.
      {.name = "release shape",
       .segments = {{150, 2}, {40, 1}},
       .heads = 64,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 128,
       .ratio = 1,
       .topk = 100},
      {.name = "release shape, a chunk",
       .segments = {{90, 20, 17}, {3, 5}},
       .heads = 64,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 32,
       .ratio = 2,
       .topk = 48},
      {.name = "release shape, rows of many queries",
       .segments = {{60, 60}, {9, 12}},
       .heads = 64,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 32,
       .ratio = 2,
       .topk = 32},
      {.name = "release shape, many requests",
       .segments = std::vector<StepSegment>(70, {9, 1}),
       .heads = 64,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 8,
       .ratio = 1,
       .topk = 4},
      {.name = "release shape, windows of chunks",
       .segments = {{300, 24}, {5, 22, 12}, {127, 4, 3}},
       .heads = 64,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 128},
      {.name = "release shape, short windows, floor",
       .segments = {{90, 20}, {0, 42, 20}},
       .heads = 64,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 40,
       .floor = {70, 15}},
      {.name = "release shape, draft",
       .segments = {{50, 5}, {0, 2}},
       .heads = 64,
       .head_dim = 512,
       .rope_dim = 64,
       .window = 32,
       .bidirectional = true},
  };
  return list;
}

Cases sparse_attention_cases(uint64_t seed);

}  // namespace hadal::testing
