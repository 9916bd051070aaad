// Keyed noise and the weights of tokens, as hosts and devices compute them.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/sample/sample.h"

#ifdef __CUDACC__
#define HADAL_EVERYWHERE __host__ __device__
#else
#define HADAL_EVERYWHERE
#endif

namespace hadal::sampling {

inline constexpr int kMostVocab = 1 << 18;  // so many units of 2^44 fit in 64 bits

// SplitMix64's finaliser: every input bit reaches every output bit.
HADAL_EVERYWHERE inline uint64_t scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
HADAL_EVERYWHERE inline uint64_t noise_of_position(uint64_t seed, int64_t position) {
  return scramble(scramble(seed) ^ static_cast<uint64_t>(position));
}
HADAL_EVERYWHERE inline uint64_t noise_bits(uint64_t noise_of_position, int32_t token) {
  return scramble(noise_of_position ^ static_cast<uint64_t>(static_cast<uint32_t>(token)));
}
HADAL_EVERYWHERE inline double gumbel(uint64_t bits) {
  const double uniform = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;  // in (0, 1)
  return -log(-log(uniform));
}
// No less than gumbel(bits), at a fraction of its cost: with k leading ones, 1 - uniform is more than 2^-(k+2), and
// -log(uniform) no less than that.
HADAL_EVERYWHERE inline double gumbel_bound(int leading_ones) { return 0.6931471806 * (leading_ones + 2); }

HADAL_EVERYWHERE inline double weight(float logit, float largest, double temperature) {
  return exp((static_cast<double>(logit) - static_cast<double>(largest)) / temperature);
}
// NOLINTNEXTLINE(bugprone-incorrect-roundings): weights are at most 1, and a half too much once is no matter
HADAL_EVERYWHERE inline uint64_t weight_units(double weight) { return static_cast<uint64_t>(weight * 0x1p44 + 0.5); }
// What the weights of the kept tokens must reach, of so many.
HADAL_EVERYWHERE inline uint64_t nucleus_units(uint64_t total, double top_p) {
  const auto units = static_cast<uint64_t>(ceil(static_cast<double>(total) * top_p));
  return units < 1 ? 1 : units > total ? total : units;
}

}  // namespace hadal::sampling
