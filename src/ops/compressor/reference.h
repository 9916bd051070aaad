// The compressor's rows in front of Q2 and Q3: what packed rows are checked against.      spec 3.4, 3.5
#pragma once

#include <vector>

#include "ops/compressor/compressor.h"

namespace hadal::reference {

// k_norm( wk c ), rotated at g * ratio; c [head_dim] is the latent before its rotation.
std::vector<float> index_key(Numerics numerics, const CompressorArgs& args, const float* c, int32_t group);
// c rotated at g * ratio.
std::vector<float> compressed_entry(Numerics numerics, const CompressorArgs& args, const float* c, int32_t group);

}  // namespace hadal::reference
