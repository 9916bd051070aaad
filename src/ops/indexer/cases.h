// Cases of the indexer.
#pragma once

#include <vector>

#include "ops/indexer/indexer.h"
#include "ops/testing/step.h"

namespace hadal::testing {

struct IndexerCase {
  const char* name;
  std::vector<StepSegment> segments;  // queries for the kept rows
  int ratio = 1, heads = 4, index_dim = 32, rope_dim = 16, d = 64, q_lora = 64, topk = 4;
  CandidateUse use = CandidateUse::none;
  int blocks = 3, block_size = 2;
  bool equal_keys = false;  // every key occurs several times
  bool few_heads = false;   // head weights as they come: many scores are exactly zero
  int page_tokens = 4;
};
inline const std::vector<IndexerCase>& indexer_list() {
  static const std::vector<IndexerCase> list = {
      {.name = "no rows", .segments = {{5, 0}}},
      {.name = "fewer entries than topk", .segments = {{0, 3}}},
      {.name = "as many entries as topk", .segments = {{3, 1}, {4, 1}}},
      {.name = "ratio 2, from no entry on", .segments = {{0, 13}}, .ratio = 2},
      {.name = "ragged, pages out of order", .segments = {{40, 3}, {0, 1}, {17, 2}, {8, 0}, {63, 5}}},
      {.name = "ratio 2, ragged", .segments = {{40, 3}, {1, 1}, {17, 2}}, .ratio = 2, .topk = 5},
      {.name = "queries for a suffix", .segments = {{10, 12, 3}, {5, 4, 0}, {30, 2, 2}}},
      {.name = "equal keys", .segments = {{50, 4}}, .topk = 7, .equal_keys = true},
      {.name = "zero scores", .segments = {{60, 3}}, .heads = 1, .topk = 50, .few_heads = true},
      {.name = "publish, few blocks", .segments = {{0, 7}}, .use = CandidateUse::publish},
      {.name = "publish", .segments = {{20, 6}, {6, 3}, {31, 9, 4}}, .use = CandidateUse::publish},
      {.name = "publish, equal keys",
       .segments = {{41, 5}},
       .use = CandidateUse::publish,
       .blocks = 4,
       .block_size = 4,
       .equal_keys = true},
      {.name = "filter", .segments = {{20, 6}, {6, 3}, {31, 9, 4}}, .use = CandidateUse::filter},
      {.name = "filter, fewer candidates than topk", .segments = {{40, 4}}, .topk = 12, .use = CandidateUse::filter},
      {.name = "release head",
       .segments = {{600, 2}},
       .heads = 32,
       .index_dim = 128,
       .rope_dim = 64,
       .d = 256,
       .q_lora = 128,
       .topk = 512,
       .page_tokens = 64},
      {.name = "release head, many rows",
       .segments = {{500, 21}, {170, 12}},
       .heads = 32,
       .index_dim = 128,
       .rope_dim = 64,
       .d = 256,
       .q_lora = 128,
       .topk = 128,
       .page_tokens = 64},
      {.name = "release head, many rows, publish",
       .segments = {{500, 21}, {170, 12}},
       .heads = 32,
       .index_dim = 128,
       .rope_dim = 64,
       .d = 256,
       .q_lora = 128,
       .topk = 128,
       .use = CandidateUse::publish,
       .blocks = 60,
       .block_size = 8,
       .page_tokens = 64},
      {.name = "release head, filter",
       .segments = {{1500, 1}},
       .heads = 32,
       .index_dim = 128,
       .rope_dim = 64,
       .d = 256,
       .q_lora = 128,
       .topk = 512,
       .use = CandidateUse::filter,
       .blocks = 100,
       .block_size = 8,
       .page_tokens = 64},
  };
  return list;
}

Cases indexer_cases(uint64_t seed);

}  // namespace hadal::testing
