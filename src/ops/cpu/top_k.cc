#include "ops/cpu/top_k.h"

#include <array>
#include <bit>
#include <limits>

namespace hadal::cpu {
namespace {

// Larger float, larger integer; -0 and +0 are equal, as they compare.
uint32_t rank_of(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x + 0.0f);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

}  // namespace

// The k-th largest rank is found digit by digit (11, 11 and 10 bits), each pass counting the scores that share the digits
// found so far; the last pass collects. Four reads of the list, whatever its order.
int select_top_k(const float* scores, int64_t count, int k, int32_t* out) {
  const uint32_t lowest = rank_of(-std::numeric_limits<float>::infinity());
  int64_t finite = 0;
  if (count <= k) {
    int n = 0;
    for (int64_t i = 0; i < count; ++i)
      if (rank_of(scores[i]) > lowest) out[n++] = static_cast<int32_t>(i);
    return n;
  }
  uint32_t prefix = 0, mask = 0;  // of the k-th largest rank
  int64_t wanted = k;             // how many of the scores with this prefix belong to the k largest
  for (const auto& [shift, bits] : {std::array{21, 11}, std::array{10, 11}, std::array{0, 10}}) {
    std::array<int64_t, 2048> bins{};
    const uint32_t digit_mask = (1u << bits) - 1;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t rank = rank_of(scores[i]);
      finite += shift == 21 && rank > lowest;
      if ((rank & mask) == prefix) ++bins[(rank >> shift) & digit_mask];
    }
    uint32_t digit = digit_mask;
    while (bins[digit] < wanted) wanted -= bins[digit--];
    prefix |= digit << shift;
    mask |= digit_mask << shift;
  }
  const bool few = finite <= k;
  if (few) {
    prefix = lowest;
    wanted = 0;
  }
  int n = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t rank = rank_of(scores[i]);
    if (rank > prefix || (rank == prefix && wanted-- > 0)) out[n++] = static_cast<int32_t>(i);
  }
  return n;
}

}  // namespace hadal::cpu
