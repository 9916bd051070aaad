// Random inputs of operator cases: the same seed gives the same bytes everywhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <vector>

namespace hadal::testing {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // [0, 1)
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // lo .. hi, both included
  int integer(int lo, int hi) { return lo + static_cast<int>(bits() % static_cast<uint64_t>(hi - lo + 1)); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  // Independent normal values; one in 64 is `outlier` times larger, as activations of language models have it.
  std::vector<float> normals(int64_t count, double sigma = 1, double outlier = 1) {
    std::vector<float> x(count);
    for (float& v : x) v = static_cast<float>(normal() * sigma * (bits() % 64 == 0 ? outlier : 1));
    return x;
  }
  std::vector<float> uniforms(int64_t count, double lo, double hi) {
    std::vector<float> x(count);
    for (float& v : x) v = static_cast<float>(lo + (hi - lo) * uniform());
    return x;
  }
  // 0 .. count - 1 in random order
  std::vector<int32_t> permutation(int count) {
    std::vector<int32_t> p(count);
    for (int i = 0; i < count; ++i) p[i] = i;
    for (int i = count - 1; i > 0; --i) std::swap(p[i], p[integer(0, i)]);
    return p;
  }

 private:
  uint64_t state_;
};

// A seed of its own for every named thing.
inline uint64_t derive_seed(uint64_t seed, std::string_view name) {
  for (const char c : name) seed = Random(seed ^ static_cast<uint8_t>(c)).bits();
  return seed;
}

}  // namespace hadal::testing
