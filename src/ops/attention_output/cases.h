// Cases of the output projection.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

struct AttentionOutputCase {
  const char* name;
  int rows, groups, k, o_lora, d;  // k = columns of a group
};
inline constexpr AttentionOutputCase kAttentionOutputCases[] = {
    {"no rows", 0, 4, 64, 32, 64},
    {"one row", 1, 4, 128, 32, 128},
    {"one group", 3, 1, 64, 64, 96},
    {"groups of an uneven number of blocks", 5, 2, 96, 32, 160},
    {"many rows", 67, 4, 64, 32, 64},
    {"groups of half a tile", 3, 8, 64, 32, 64},
    {"groups of one and a half tiles, many rows", 150, 8, 64, 96, 64},
    {"groups of two tiles, many rows", 150, 4, 64, 128, 64},
    {"wide", 3, 8, 512, 128, 512},
    {"wide, many rows", 150, 2, 256, 256, 256},
    // The release's 4,096 columns of a group, and its 8,192 of wo_b.
    {"release sums of wo_a", 3, 1, 4096, 256, 256},
    {"release sums of wo_b", 3, 8, 64, 1024, 256},
};

Cases attention_output_cases(uint64_t seed);

}  // namespace hadal::testing
