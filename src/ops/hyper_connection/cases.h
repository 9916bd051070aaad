// Cases of the hyper-connections.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

struct HyperConnectionCase {
  const char* name;
  int rows, copies, d;
  bool y = true;        // a sub-layer's output is written
  bool norm = true;     // the next sub-layer's input is wanted
  bool mix = true;      // new coefficients
  bool mapped = false;  // rows come from a larger set, and y from another one
  bool in_place = false;
  bool collapsed = false;
  bool store_h = true;
  bool fixed_mix = false;  // no products: the coefficients follow from the base alone, to the last bits
  double size = 1;         // of h and y: far below 1 the norms' eps would show
};
inline constexpr HyperConnectionCase kHyperConnectionCases[] = {
    {.name = "no rows", .rows = 0, .copies = 4, .d = 64},
    {.name = "one row", .rows = 1, .copies = 4, .d = 64},
    {.name = "first site of the model: no y", .rows = 5, .copies = 4, .d = 96, .y = false},
    {.name = "in place", .rows = 9, .copies = 4, .d = 128, .in_place = true},
    {.name = "odd multiple of 32", .rows = 3, .copies = 4, .d = 224},
    {.name = "two copies", .rows = 3, .copies = 2, .d = 64},
    {.name = "a suffix of the rows", .rows = 6, .copies = 4, .d = 64, .mapped = true},
    {.name = "write only", .rows = 6, .copies = 4, .d = 64, .norm = false, .mix = false},
    {.name = "last site: no mix, collapsed kept", .rows = 6, .copies = 4, .d = 64, .mix = false, .collapsed = true},
    {.name = "input of the norm only", .rows = 6, .copies = 4, .d = 64, .mix = false, .mapped = true, .store_h = false},
    {.name = "coefficients only", .rows = 4, .copies = 4, .d = 64, .y = false, .norm = false},
    {.name = "coefficients at their limits", .rows = 2, .copies = 4, .d = 64, .y = false, .fixed_mix = true},
    {.name = "tiny values", .rows = 3, .copies = 4, .d = 64, .size = 1e-5},
    {.name = "many rows", .rows = 131, .copies = 4, .d = 128},
    {.name = "release width", .rows = 7, .copies = 4, .d = 5120},
    {.name = "release width, many rows", .rows = 75, .copies = 4, .d = 5120, .mapped = true},
    {.name = "groups of a row by several slices", .rows = 37, .copies = 4, .d = 896},
};

struct TapCase {
  const char* name;
  int rows, copies, d, taps;
  bool mapped = false;
};
inline constexpr TapCase kTapCases[] = {
    {"no rows", 0, 4, 64, 3},
    {"one row", 1, 4, 64, 3},
    {"mapped rows", 5, 4, 96, 2, true},
    {"release width", 3, 4, 5120, 3, true},
};

Cases hyper_connection_cases(uint64_t seed);
Cases tap_cases(uint64_t seed);

}  // namespace hadal::testing
