// The sampler against the formula, written out.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace hadal {
namespace {

std::vector<float> some_logits(size_t n, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;  // not of `scale`, which may be 0
  std::vector<float> logits(n);
  for (float& v : logits) v = scale * normal(random);
  return logits;
}

TEST(Sampler, IsTheArgMaxOfTheFormula) {
  for (unsigned i = 0; i < 400; ++i) {
    const std::vector<float> logits = some_logits(1000, i, i % 5 == 0 ? 0.0F : static_cast<float>(i % 7) * 2);
    SamplingOptions o;
    o.temperature = i % 3 == 0 ? 0.05 : i % 3 == 1 ? 1.0 : 30.0;
    o.seed = i;
    int32_t want = 0;
    double best = -1e300;
    for (int32_t t = 0; t < 1000; ++t) {
      const double v =
          static_cast<double>(logits[static_cast<size_t>(t)]) / o.temperature + gumbel_noise(o.seed, 17 + i, t);
      if (v > best) {
        best = v;
        want = t;
      }
    }
    ASSERT_EQ(sample(logits, o, 17 + i), want) << i;
    // Filters that keep everything change nothing.
    o.top_k = 1000;
    o.min_p = 1e-300;
    ASSERT_EQ(sample(logits, o, 17 + i), want) << i;
  }
}

TEST(Sampler, TheSmallestTemperaturesTakeTheMostLikelyToken) {
  const std::vector<float> logits = {1, 30, 29.999998F, 500, 499.99997F, -3};
  SamplingOptions o;
  for (const double temperature : {5e-324, 1e-310, 1e-101, 1e-99, 1e-9}) {
    o.temperature = temperature;
    for (o.seed = 0; o.seed < 50; ++o.seed) EXPECT_EQ(sample(logits, o, 3), 3) << temperature;
  }
}

// Frequencies follow the softmax: each count is within five standard deviations of its expectation.
TEST(Sampler, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5F, -INFINITY};
  SamplingOptions o;
  o.temperature = 0.7;
  constexpr int kDraws = 200000;
  std::vector<int> count(logits.size());
  for (int i = 0; i < kDraws; ++i) ++count[static_cast<size_t>(sample(logits, o, i))];
  double total = 0;
  for (const float v : logits) total += std::exp(v / o.temperature);
  for (size_t t = 0; t < logits.size(); ++t) {
    const double p = std::exp(logits[t] / o.temperature) / total;
    EXPECT_NEAR(count[t], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1e-9) << t;
  }
}

}  // namespace
}  // namespace hadal
