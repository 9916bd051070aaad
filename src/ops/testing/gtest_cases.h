// The case lists as gtest tests.
#pragma once

#include <gtest/gtest.h>

#include "ops/cpu/context.h"
#include "ops/testing/runner.h"

namespace hadal::testing {

// Tests repeat themselves: fresh seeds are for `hadal selftest`.
inline constexpr uint64_t kTestSeed = 20261129;

inline void expect_cpu_matches_reference(Cases (*make)(uint64_t seed)) {
  const Device cpu{.operators = &cpu_operators(),
                   .context = [](Numerics numerics) { return std::make_unique<CpuContext>(numerics, /*threads=*/2); }};
  for (const CaseResult& result : run_cases(make(kTestSeed), cpu))
    EXPECT_TRUE(result.passed) << result.name << " (" << to_string(result.numerics) << "): " << result.message;
}

}  // namespace hadal::testing
