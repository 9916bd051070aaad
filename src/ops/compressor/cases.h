// Cases of the compressor.
#pragma once

#include <vector>

#include "ops/testing/step.h"

namespace hadal::testing {

struct CompressorCase {
  const char* name;
  std::vector<StepSegment> segments;
  int ratio, d, head_dim, index_dim, rope_dim;
  int page_tokens = 4;
  bool trace = true;
  double size = 1;  // of x: far below 1 the norms' eps would show
};
inline const std::vector<CompressorCase>& compressor_list() {
  static const std::vector<CompressorCase> list = {
      {"no rows", {{5, 0}}, 2, 64, 64, 32, 16},
      {"ratio 1, one row", {{0, 1}}, 1, 128, 64, 32, 16},
      {"ratio 1, ragged", {{0, 9}, {3, 1}, {31, 6}}, 1, 64, 64, 32, 16},
      {"ratio 2, even start, even end", {{0, 8}}, 2, 64, 64, 32, 16},
      {"ratio 2, even start, odd end", {{6, 5}}, 2, 64, 64, 32, 16},
      {"ratio 2, pending half", {{7, 5}}, 2, 64, 64, 32, 16},
      {"ratio 2, one row that completes", {{1, 1}}, 2, 64, 64, 32, 16},
      {"ratio 2, one row that waits", {{2, 1}}, 2, 64, 64, 32, 16},
      {"ratio 2, ragged", {{0, 1}, {5, 1}, {9, 4}, {16, 7}, {2, 0}, {31, 2}}, 2, 96, 96, 64, 32},
      {"ratio 2, without traces", {{3, 6}}, 2, 64, 64, 32, 16, 4, false},
      {"ratio 1, tiny values", {{3, 2}}, 1, 64, 64, 32, 16, 4, true, 1e-5},
      {"ratio 2, long chunk", {{1, 77}}, 2, 64, 64, 32, 16, 16},
      {"ratio 1, release head", {{100, 3}}, 1, 512, 512, 128, 64, 64},
      {"ratio 2, release head", {{1023, 4}}, 2, 512, 512, 128, 64, 64},
      {"ratio 2, sums of 5,120", {{131069, 3}}, 2, 5120, 256, 128, 64, 64},
  };
  return list;
}

Cases compressor_cases(uint64_t seed);

}  // namespace hadal::testing
