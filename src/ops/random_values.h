// Random codes and scales as they occur in trained weights and filled caches: a value is a function of a seed and an
// index, so that any part can be made by any thread of any device.
#pragma once

#include <cstdint>

#include "base/row_format.h"
#include "ops/cuda/codec.cuh"

namespace hadal {

struct RandomValues {
  uint64_t seed = 0;
  float deviation = 1;
  float mean = 0;  // of bf16 and fp32 values
};

namespace random_values {

// Codes are normal with these deviations, well inside their grids; block scales carry the size.
inline constexpr float kFp8Deviation = 100, kFp4Deviation = 2;

// splitmix64 of a counter.
HADAL_HD uint64_t bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Nearly normal, deviation 1, at most 3.45: the sum of four bytes.
HADAL_HD float normal(uint32_t word) {
  const uint32_t pairs = (word & 0x00ff00ffu) + ((word >> 8) & 0x00ff00ffu);
  const auto sum = static_cast<float>((pairs & 0xffffu) + (pairs >> 16));
  return (sum - 510.0f) * (1.0f / 147.8f);
}

HADAL_HD uint8_t fp8_code(uint32_t word) { return cuda::to_e4m3(kFp8Deviation * normal(word)); }
HADAL_HD uint8_t fp4_pair(uint64_t words) {
  return static_cast<uint8_t>(cuda::to_e2m1(kFp4Deviation * normal(static_cast<uint32_t>(words))) |
                              cuda::to_e2m1(kFp4Deviation * normal(static_cast<uint32_t>(words >> 32))) << 4);
}
// A byte near `centre`: one in four each is one less or one more.
HADAL_HD uint8_t scale_byte(int centre, uint64_t random) {
  const int r = static_cast<int>(random >> 62);
  return static_cast<uint8_t>(centre + (r == 0 ? -1 : r == 3 ? 1 : 0));
}

// Byte `at` of a packed row (base/row_format.h) whose values have a size of about 1.
HADAL_HD uint8_t row_byte(RowFormat format, int dim, int at, uint64_t random) {
  switch (format) {
    case RowFormat::fp8_ue8m0_32:
      return at < dim ? fp8_code(static_cast<uint32_t>(random)) : scale_byte(127 - 7, random);  // 2^-7 of 100
    case RowFormat::fp4_ue8m0_32: return at < dim / 2 ? fp4_pair(random) : scale_byte(127 - 1, random);
    case RowFormat::fp4_e4m3_16:
      return at < dim / 2 ? fp4_pair(random) : static_cast<uint8_t>(0x2c + (random & 7));  // 0.375 to 0.75
  }
  return 0;
}

}  // namespace random_values
}  // namespace hadal
