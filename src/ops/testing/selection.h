// Selections: exact, except that items whose scores are closer than their tolerances may change places.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/testing/compare.h"

namespace hadal::testing {

// `chosen` must be min(k, number of finite scores) different items in ascending order, none of them clearly below an item
// that was left out. Items of the same `kind` have equal scores on every backend: of these the lower ones come first.
void check_selection(Report& report, const std::string& name, const std::vector<double>& scores,
                     const std::vector<double>& tolerances, int64_t k, const std::vector<int32_t>& chosen,
                     const std::function<int64_t(int32_t)>& kind);

}  // namespace hadal::testing
