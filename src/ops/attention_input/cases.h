// Cases of the projections in front of attention.
#pragma once

#include <vector>

#include "ops/testing/step.h"

namespace hadal::testing {

struct AttentionInputCase {
  const char* name;
  std::vector<StepSegment> segments;  // latents for all rows; queries for the kept ones
  int d, heads, head_dim, rope_dim, q_lora;
  bool queries = true;
  double size = 1;  // of x: far below 1 the norms' eps would show
};
inline const std::vector<AttentionInputCase>& attention_input_list() {
  static const std::vector<AttentionInputCase> list = {
      {"no rows", {{5, 0}}, 64, 2, 64, 16, 64},
      {"one row at position 0", {{0, 1}}, 128, 8, 64, 16, 64},
      {"one row far out", {{1048575, 1}}, 128, 8, 64, 16, 64},
      {"ragged segments", {{0, 3}, {17, 1}, {300, 6}}, 96, 3, 96, 32, 32},
      {"queries for a suffix", {{0, 9, 4}, {7, 1, 0}, {40, 5, 5}}, 64, 4, 64, 16, 64},
      {"latents only", {{3, 6}}, 64, 4, 64, 16, 64, false},
      {"whole head rotated", {{2, 3}}, 64, 2, 32, 32, 64},
      {"tiny values", {{2, 3}}, 64, 2, 64, 16, 64, true, 1e-5},
      {"many rows", {{0, 70}, {11, 3}}, 64, 4, 64, 16, 64},
      {"release head", {{4000, 2}, {64, 3}}, 512, 4, 512, 64, 128},
      {"wide, many rows", {{0, 131}, {300, 6}}, 256, 2, 128, 64, 256},
      {"wide, queries for a suffix", {{0, 9, 4}, {40, 5, 5}}, 256, 2, 128, 64, 256},
      {"release sums", {{4000, 2}}, 5120, 1, 256, 64, 256},
  };
  return list;
}

Cases attention_input_cases(uint64_t seed);

}  // namespace hadal::testing
