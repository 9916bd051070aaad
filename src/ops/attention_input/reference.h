// The window latents in front of Q1: what a packed row is checked against.      spec 3.3
#pragma once

#include "ops/attention_input/attention_input.h"

namespace hadal::reference {

// [in.rows, head_dim]: rope( kv_norm( wkv x ), p )
std::vector<float> window_latents(Numerics numerics, const AttentionInputArgs& args);

}  // namespace hadal::reference
