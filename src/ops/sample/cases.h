// Cases of the choice of tokens.
#pragma once

#include "ops/testing/case.h"

namespace hadal::testing {

Cases sample_cases(uint64_t seed);

}  // namespace hadal::testing
