// Cases of the draft module's own operators.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

struct DraftContextCase {
  const char* name;
  int rows, d, taps;
  double size = 1;  // of the input: far below 1 the norm's eps would show
};
inline constexpr DraftContextCase kDraftContextCases[] = {
    {"no rows", 0, 64, 3},
    {"one row", 1, 128, 3},
    {"odd rows", 7, 96, 2},
    {"many rows", 65, 64, 3},
    {"tiny values", 2, 64, 3, 1e-5},
    {"wide", 3, 512, 3},
    {"wide, many rows", 140, 128, 3},
    {"release sums", 3, 256, 60},  // 15,360 terms, as three taps of 5,120 have
};

struct DraftLogitsCase {
  const char* name;
  int rows, vocab, d, rank;
};
inline constexpr DraftLogitsCase kDraftLogitsCases[] = {
    {"no rows", 0, 64, 64, 32},
    {"one row", 1, 512, 128, 32},
    {"odd vocabulary", 3, 517, 96, 96},
    {"release rank and width", 5, 700, 5120, 256},
};

Cases draft_context_cases(uint64_t seed);
Cases draft_logits_cases(uint64_t seed);

}  // namespace hadal::testing
