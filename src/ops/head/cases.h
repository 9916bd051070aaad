// Cases of the head.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

struct HeadCase {
  const char* name;
  int rows, vocab, d;
};
inline constexpr HeadCase kHeadCases[] = {
    {"no rows", 0, 64, 64},
    {"one row", 1, 512, 128},
    {"odd vocabulary", 3, 517, 96},
    {"odd multiple of 32", 2, 33, 160},
    {"many rows", 37, 130, 64},
    {"release width", 5, 1000, 5120},
    {"whole blocks", 1, 448, 5120},
    {"whole blocks, some rows", 27, 64, 256},
    {"whole blocks, 140 rows", 140, 9088, 512},
};

Cases head_cases(uint64_t seed);

}  // namespace hadal::testing
