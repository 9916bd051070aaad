// Cases of the router.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

struct RouterCase {
  const char* name;
  int rows, experts, topk, d;
  bool image = false;  // some rows are image positions
  bool ties = false;   // pairs of experts with equal weights and biases
  double gain = 1.5;   // deviation of the logits
  float temperature = 1;
};
inline constexpr RouterCase kRouterCases[] = {
    {"no rows", 0, 8, 2, 64},
    {"one row", 1, 8, 2, 128},
    {"all experts", 3, 4, 4, 64},
    {"one expert of one", 2, 1, 1, 64},
    {"image rows", 9, 16, 3, 64, true},
    {"ties", 33, 16, 5, 64, true, true},
    {"odd counts", 5, 37, 7, 224},
    {"logits beyond the softplus branch", 6, 24, 6, 64, false, false, 12},
    {"temperature", 4, 16, 3, 64, false, false, 1.5, 0.5f},
    {"many rows", 130, 128, 3, 64, true},
    {"release", 3, 384, 6, 5120, true},
    {"experts of the release, many rows", 131, 384, 6, 1280},
    {"few experts on the matrix unit", 150, 128, 6, 512, true},
};

Cases router_cases(uint64_t seed);

}  // namespace hadal::testing
