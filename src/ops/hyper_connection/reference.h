// The two halves of the hyper-connection that tests look at on their own.      spec 3.2
#pragma once

#include "ops/hyper_connection/hyper_connection.h"

namespace hadal::reference {

struct Mix {
  std::vector<double> pre, post, comb;  // [copies], [copies], [copies * copies] as comb[j * copies + k]
};

// m[(2 + copies) * copies] = (F v) * rsqrt(mean(v^2) + eps), scaled after the product.
std::vector<double> mix_products(const HyperConnectionArgs& args, const float* v);

// From m to the coefficients: affine map, sigmoids, Sinkhorn.
Mix mix_from_products(const std::vector<double>& m, const float* scale, const float* base, int copies, int iterations,
                      double hc_eps);

}  // namespace hadal::reference
