// Activations that only linears read, in the form in which they do.
#pragma once

#include "ops/cuda/fp8_rows.h"
#include "ops/types.h"

namespace hadal::cuda {

// Operators::linear_input: bf16, or where wants_fp8() says so a place for their Q4 alone, u8 [rows, groups * w.k].
Tensor linear_input(Context& context, int rows, const Weight& w, int groups);

// Such a u8 tensor: codes in the layout of Fp8Rows, and behind them the scales.
size_t q4_bytes(int rows, int columns);
Fp8Rows fp8_rows(const Tensor& q4);

}  // namespace hadal::cuda
