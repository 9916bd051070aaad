// Cases of the commit.
#pragma once

#include <vector>

#include "ops/testing/step.h"

namespace hadal::testing {

struct CacheCommitCase {
  const char* name;
  std::vector<StepSegment> segments;  // `in` holds the kept rows
  std::vector<int32_t> accepted;
  int window, head_dim;
  bool pending = false;
  int others = 1;  // layers that see every row, as those of the encoder, behind one that has the kept rows
};
inline const std::vector<CacheCommitCase>& cache_commit_list() {
  static const std::vector<CacheCommitCase> list = {
      {"no rows", {{5, 0}}, {0}, 8, 64},
      {"one row", {{0, 1}}, {1}, 8, 64},
      {"ring not full", {{0, 5}}, {5}, 8, 64},
      {"exactly full", {{0, 8}}, {8}, 8, 64},
      {"wraps", {{6, 5}}, {5}, 8, 64},
      {"more rows than slots", {{3, 21}}, {21}, 8, 64},
      {"drafts rejected", {{13, 6}, {20, 6}, {8, 6}}, {1, 6, 3}, 8, 64},
      {"nothing accepted", {{13, 6}, {4, 3}}, {0, 3}, 8, 64},
      {"a suffix of the rows", {{0, 30, 9}, {7, 1, 1}, {16, 4, 2}}, {30, 1, 4}, 8, 32},
      {"suffix shorter than the window", {{0, 30, 3}}, {30}, 8, 32},
      {"rejection reaches into the suffix", {{10, 6, 4}}, {4}, 8, 32},
      {"pending: odd and even lengths",
       {{0, 1}, {0, 2}, {3, 2}, {3, 3}, {4, 4}, {6, 0}},
       {1, 2, 2, 3, 4, 0},
       8,
       64,
       true},
      {"pending: drafts rejected", {{4, 4}, {4, 4}, {5, 4}, {5, 4}, {7, 3}}, {1, 2, 1, 2, 0}, 8, 64, true},
      {"more layers than a launch on a GPU takes", {{3, 21}}, {21}, 8, 64, true, 50},
      {"release", {{120, 40}, {1000, 1}}, {40, 1}, 128, 512, true},
  };
  return list;
}

Cases cache_commit_cases(uint64_t seed);

}  // namespace hadal::testing
