// Rows of activations as FP8 products read them: E4M3 codes and the scales of Q4 (docs/numerics.md).
//
// Codes are [k / 128][padded rows][128], the 16-byte chunk c of a row's 128 at c ^ (row & 7): any rows of 128 columns are
// one contiguous copy into shared memory, where they are an operand of the matrix instruction as they lie.
#pragma once

#include <cstdint>

#include "ops/cuda/context.h"

namespace hadal::cuda {

struct Fp8Rows {
  uint8_t* codes = nullptr;
  float* scales = nullptr;  // [k / 128][padded]
  int rows = 0;
  int padded = 0;  // rows, rounded up to a multiple of 8
  int columns = 0;

  explicit operator bool() const { return codes != nullptr; }
};

// Room for rows of `columns` channels, a multiple of 128.
Fp8Rows fp8_rows(Scratch& scratch, int rows, int columns);
// Q4 of the bf16 rows x, or of rows x_row[..] of it.
void quantise_rows(CudaContext& context, const uint16_t* x, int64_t x_stride, const int32_t* x_row, const Fp8Rows& out);

}  // namespace hadal::cuda
