#include "models/deepseek_v41/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hadal::deepseek_v41 {

std::vector<float> inverse_frequencies(double theta, int dim) {
  std::vector<float> inv(static_cast<size_t>(dim / 2));
  for (int i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    inv[static_cast<size_t>(i)] = 1.0f / power;
  }
  return inv;
}

std::vector<float> yarn_inverse_frequencies(double theta, int dim, const RopeScaling& scaling) {
  std::vector<float> inv = inverse_frequencies(theta, dim);
  const auto correction = [&](double rotations) {
    return dim *
           std::log(static_cast<double>(scaling.original_max_position_embeddings) /
                    (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  const auto low = static_cast<float>(std::max(std::floor(correction(scaling.beta_fast)), 0.0));
  auto high = static_cast<float>(std::min(std::ceil(correction(scaling.beta_slow)), dim - 1.0));
  if (low == high) high += 0.001f;  // as published: no division by zero
  const auto factor = static_cast<float>(scaling.factor);
  for (int i = 0; i < dim / 2; ++i) {
    float& f = inv[static_cast<size_t>(i)];
    const float ramp = std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
    f = (f / factor) * ramp + f * (1.0f - ramp);
  }
  return inv;
}

}  // namespace hadal::deepseek_v41
