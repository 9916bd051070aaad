// What tolerance.h says of the sums of a GPU's 8-bit products, by adding some as the GPU does.
#include "ops/testing/tolerance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/dtype.h"
#include "ops/testing/random.h"

namespace hadal::testing {
namespace {

constexpr int kGroup = 128, kAtOnce = 32, kBits = 13;

double cut(double x, double unit) { return std::trunc(x / unit) * unit; }

// An E4M3 number; its exponent, which is that of the smallest normal number below it.
struct Code {
  double value;
  int exponent;
};
Code code_of(double x) {
  const double value = from_e4m3(to_e4m3(static_cast<float>(x)));
  return {value, value == 0 ? -6 : std::max(std::ilogb(value), -6)};
}

// The sum of a group: 32 products and the sum so far, cut off below the largest of them, four times.
double add_as_tensor_cores(const std::vector<Code>& x, const std::vector<Code>& w) {
  double sum = 0;
  for (int first = 0; first < kGroup; first += kAtOnce) {
    int largest = sum == 0 ? -100 : std::ilogb(sum);
    for (int i = first; i < first + kAtOnce; ++i)
      if (x[i].value * w[i].value != 0) largest = std::max(largest, x[i].exponent + w[i].exponent);
    const double unit = std::ldexp(1, largest - kBits);
    sum = cut(sum, unit);
    for (int i = first; i < first + kAtOnce; ++i) sum += cut(x[i].value * w[i].value, unit);
    if (sum != 0) sum = cut(sum, std::ldexp(1, std::ilogb(sum) - kBits));
  }
  return sum;
}

struct Dropped {
  double deviation = 0;  // of the results' size
  double flipped = 0;    // share of results that round to another bf16 value
};

// Results of `groups` groups of normal values, of which one in 64 is `outlier` times larger.
Dropped measure(int groups, int results, double outlier) {
  Random random(7);
  std::vector<float> normal(1 << 16);
  for (float& v : normal) v = static_cast<float>(random.normal());
  double errors = 0, squares = 0;
  int flips = 0;
  std::vector<double> row(kGroup);
  std::vector<Code> x(kGroup), w(kGroup);
  for (int r = 0; r < results; ++r) {
    double exact = 0, have = 0;
    for (int g = 0; g < groups; ++g) {
      double top = 0;
      for (double& v : row) {
        const uint64_t bits = random.bits();
        v = normal[bits >> 48] * (bits % 64 == 0 ? outlier : 1);
        top = std::max(top, std::fabs(v));
      }
      const double scale = std::exp2(std::ceil(std::log2(top / 448)));  // Q4
      for (int i = 0; i < kGroup; ++i) {
        x[i] = code_of(row[i] / scale);
        w[i] = code_of(100.0 * normal[random.bits() >> 48]);
        exact += x[i].value * w[i].value * scale;
      }
      have += add_as_tensor_cores(x, w) * scale;
    }
    errors += (have - exact) * (have - exact);
    squares += exact * exact;
    flips += to_bf16(static_cast<float>(have)) != to_bf16(static_cast<float>(exact)) ? 1 : 0;
  }
  return {std::sqrt(errors / squares), static_cast<double>(flips) / results};
}

TEST(Tolerance, WhatTensorCoresDropOf8BitProducts) {
  for (const double outlier : {1.0, 4.0}) {
    const Dropped of_a_group = measure(1, 20000, outlier), of_ten = measure(10, 6000, outlier);
    for (const Dropped& dropped : {of_a_group, of_ten}) {
      EXPECT_GT(dropped.deviation, 0.95 * kDropped);
      EXPECT_LT(dropped.deviation, 1.1 * kDropped);
    }
    // As on an H200 (docs/numerics.md).
    EXPECT_GT(of_ten.flipped, 0.055);
    EXPECT_LT(of_ten.flipped, 0.075);
  }
}

}  // namespace
}  // namespace hadal::testing
