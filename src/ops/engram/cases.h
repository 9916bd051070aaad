// Cases of the Engram operators.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

struct EngramGatherCase {
  const char* name;
  int rows, columns, dim, table_rows;
};
inline constexpr EngramGatherCase kEngramGatherCases[] = {
    {"no rows", 0, 6, 32, 40},         {"one row", 1, 6, 32, 40},
    {"two scales a row", 5, 3, 64, 1}, {"release columns", 9, 24, 256, 777},
    {"many rows", 130, 6, 32, 5000},   {"rows of a group", 21, 12, 32, 5000},
};

enum class EngramInput {
  usual,
  nothing,   // h is zero: the gate sits on its floor
  tiny,      // far below 1 the eps of the norms would show
  opposite,  // h is far along and against the keys: the gate saturates on both sides
};
struct EngramApplyCase {
  const char* name;
  int rows, copies, d, inner;
  bool dead = false;  // some rows are image positions
  EngramInput input = EngramInput::usual;
};
inline constexpr EngramApplyCase kEngramApplyCases[] = {
    {"no rows", 0, 4, 64, 192},
    {"one row", 1, 4, 64, 192},
    {"image positions", 7, 4, 64, 192, true},
    {"two copies", 3, 2, 96, 64},
    {"gate floor", 3, 4, 64, 64, false, EngramInput::nothing},
    {"tiny residual", 3, 4, 64, 64, false, EngramInput::tiny},
    {"gate far out", 4, 4, 128, 64, false, EngramInput::opposite},
    {"many rows", 66, 4, 64, 96, true},
    {"wide", 3, 4, 512, 768},
    {"wide, many rows", 140, 2, 128, 256},
    {"release sums", 3, 1, 128, 6144},
};

Cases engram_gather_cases(uint64_t seed);
Cases engram_apply_cases(uint64_t seed);

}  // namespace hadal::testing
