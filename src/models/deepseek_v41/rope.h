// Rotation frequencies with the bits of the published computation.      spec 3.1
#pragma once

#include <vector>

#include "checkpoint/deepseek_v41_config.h"

namespace hadal::deepseek_v41 {

// fp32 steps: e = 2i/dim, P = theta^e (correctly rounded), f = 1/P. One ulp off flips cache rounding from about
// position 200 on.
std::vector<float> inverse_frequencies(double theta, int dim);

// The YaRN blend on top, as layers with ratio > 0 use it at every sequence length.
std::vector<float> yarn_inverse_frequencies(double theta, int dim, const RopeScaling& scaling);

}  // namespace hadal::deepseek_v41
