// FP8 weights as `fp8` numerics have them (docs/numerics.md): one scale for 32 rows and 128 columns instead of 32.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace hadal::cpu {

// Whether the scales differ anywhere within 128 columns: where they do not, a weight is what folding would make of it.
bool needs_folding(const Weight& weight);

// Writes codes [n, k] and scales [ceil(n/32), ceil(k/32)] in the published layout. The scale of a group is its largest;
// a code is rounded (to nearest, ties to even) to what it is in units of that: exact but for E4M3's subnormals, where
// the error is at most 2^-10 of the scale.
void fold_weight(const Weight& weight, uint8_t* codes, uint8_t* scales);

}  // namespace hadal::cpu
