// Cases of the experts.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

enum class Routing {
  random,    // different experts for every row; some get none
  one_set,   // every row goes to the same experts
  rotating,  // every expert gets about the same number of rows
};
struct ExpertsCase {
  const char* name;
  int rows, experts, topk, d, inner;
  Routing routing = Routing::random;
  float limit = 10;
  double gain = 1;       // size of gate and up
  bool partial = false;  // only every other expert is local
  // Scale bytes of w2: its rows have all from the first to the second in turn, and the shared expert gives nothing beside
  // them; 0: those of usual weights.
  int lowest = 0, highest = 0;
  double size = 1;  // of x
};
inline constexpr ExpertsCase kExpertsCases[] = {
    {"no rows", 0, 8, 2, 64, 64},
    {"one row", 1, 8, 2, 128, 64},
    {"one row takes all experts", 1, 4, 4, 64, 96},
    {"all rows take the same experts", 33, 8, 3, 64, 64, Routing::one_set},
    {"rows spread evenly", 24, 8, 2, 64, 64, Routing::rotating},
    {"one expert a row", 9, 16, 1, 96, 32},
    {"clamps bite", 7, 8, 2, 64, 64, Routing::random, 0.5f, 2},
    {"a share of the experts is local", 11, 8, 3, 64, 64, Routing::random, 10, 1, true},
    {"many rows", 80, 8, 2, 64, 64},
    {"wide", 3, 6, 3, 512, 352},
    {"long sums in front of w2", 5, 3, 2, 64, 2304},
    // Whole tiles of the matrix kernel of a GPU: one row, few rows, rows past a tile's edge.
    {"tiles, one row", 1, 8, 3, 256, 256},
    {"tiles, a share of the experts is local", 65, 8, 3, 256, 256, Routing::random, 10, 1, true},
    {"tiles, all rows take the same experts", 161, 4, 2, 512, 256, Routing::one_set},
    {"tiles, a last part that is smaller", 264, 4, 1, 256, 256, Routing::one_set},
    {"tiles, a width of the matrix kernel for 16-bit rows", 41, 4, 2, 256, 128},
    {"tiles, release sums", 3, 1, 1, 5120, 256},
    // Few rows, which have a kernel of their own: all choices that it takes, the same experts, experts that are not local.
    {"tiles, few rows", 8, 24, 8, 256, 256},
    {"tiles, few rows take the same experts", 8, 12, 3, 512, 512, Routing::one_set},
    {"tiles, few rows, a share of the experts is local", 5, 12, 4, 256, 256, Routing::random, 10, 1, true},
    {"tiles, a row none of whose experts is local", 1, 2, 1, 256, 256, Routing::rotating, 10, 1, true},
    // Every scale that a bf16 weight can have, in two halves, so that the results are bf16 numbers too.
    {"low scales", 3, 4, 2, 256, 256, Routing::random, 10, 1, false, 4, 130},
    {"high scales", 3, 4, 2, 256, 256, Routing::random, 10, 1.0 / 64, false, 126, 252},
    {"high scales, more rows", 20, 4, 2, 256, 256, Routing::random, 10, 1.0 / 64, false, 126, 252},
    {"low scales, many rows", 81, 4, 2, 256, 256, Routing::random, 10, 1, false, 4, 130},
    {"high scales, many rows", 81, 4, 2, 256, 256, Routing::random, 10, 1.0 / 64, false, 126, 252},
    // Scales of rows and of weights that make up for each other.
    {"large rows, small weights", 7, 4, 2, 256, 256, Routing::random, 10, 0x1p-60, false, 0, 0, 0x1p60},
};
// The same after the shared expert has been begun, as in a model's decode steps.
inline constexpr ExpertsCase kBegunExpertsCases[] = {
    {"begun, one row", 1, 8, 2, 128, 64},
    {"begun, rows", 80, 8, 2, 64, 64},
    {"begun, tiles, one row", 1, 8, 3, 256, 256},
    {"begun, tiles, a share of the experts is local", 31, 8, 3, 256, 256, Routing::random, 10, 1, true},
    {"begun, more rows than a branch takes", 129, 4, 1, 64, 64},
};

Cases experts_cases(uint64_t seed);

}  // namespace hadal::testing
