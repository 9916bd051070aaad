#include "ops/cpu/fold.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/dtype.h"
#include "base/error.h"

namespace hadal::cpu {
namespace {

constexpr int64_t kGroup = 4;  // blocks of 32 columns

int64_t blocks(int64_t n) { return (n + 31) / 32; }

}  // namespace

bool needs_folding(const Weight& w) {
  if (w.format != WeightFormat::fp8_block32) return false;
  const int64_t columns = blocks(w.k);
  for (int64_t i = 0; i < blocks(w.n) * columns; ++i)
    if (w.scale[i] != w.scale[i - i % columns % kGroup]) return true;
  return false;
}

void fold_weight(const Weight& w, uint8_t* codes, uint8_t* scales) {
  HADAL_CHECK(w.format == WeightFormat::fp8_block32);
  const auto* from = static_cast<const uint8_t*>(w.data);
  const int64_t columns = blocks(w.k);
  for (int64_t block = 0; block < blocks(w.n) * columns; ++block) {
    const int64_t n0 = block / columns * 32, first = block % columns, k0 = first * 32;
    const uint8_t* group = w.scale + block - first % kGroup;
    const uint8_t largest = *std::max_element(group, group + std::min(kGroup, columns - (first - first % kGroup)));
    scales[block] = largest;
    std::array<uint8_t, 256> code;
    for (int c = 0; c < 256; ++c)
      code[c] = to_e4m3(std::ldexp(from_e4m3(static_cast<uint8_t>(c)), w.scale[block] - largest));
    for (int64_t n = n0; n < std::min<int64_t>(n0 + 32, w.n); ++n)
      for (int64_t k = k0; k < std::min<int64_t>(k0 + 32, w.k); ++k) codes[n * w.k + k] = code[from[n * w.k + k]];
  }
}

}  // namespace hadal::cpu
