// The k largest of a list of scores, as the selections want them: ascending, and among equals the lower index.
#pragma once

#include <cstdint>

namespace hadal::cpu {

// Writes the indices of the k largest of scores[count] to `out`, ascending, and returns how many there are: fewer than k
// when fewer scores are above -inf. No score is NaN.
int select_top_k(const float* scores, int64_t count, int k, int32_t* out);

}  // namespace hadal::cpu
