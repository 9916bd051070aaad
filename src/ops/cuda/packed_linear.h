// FP8 weights in the register order of the matrix instruction, and the product that reads them: the fast path of
// linear.h. A weight that has been packed is always multiplied this way, for any number of rows.
#pragma once

#include <span>

#include "ops/cuda/context.h"
#include "ops/cuda/packing.h"
#include "ops/types.h"

namespace hadal::cuda {

// Of a weight that can_pack() holds for (packing.h).
size_t packed_bytes(const Weight& weight);
// Packs published bytes that lie on the device into `packed`, aligned to 256 bytes; they are not read afterwards.
void pack_linear(CudaContext& context, const Weight& weight, void* packed);

struct PackedProblem {
  const uint16_t* x;
  int64_t x_stride;
  const int32_t* x_row;
  int rows;
  int k;
  int n;
  int group_n;             // outputs that read the same k columns of x
  const uint8_t* tiles;    // [n / 64][k / 64][kPackedTile]
  const float* row_scale;  // [n]
  uint16_t* y;
  int64_t y_stride;
  int width = 0;  // of more than 128 rows: one of packed_widths, 0 = the one that a cost model expects to be fastest
};
// Rows of a tile of more than 128 rows. All give the same bits.
std::span<const int> packed_widths();
void packed_linear(const PackedProblem& problem, int multiprocessors, cudaStream_t stream);
// The parts of a packed weight.
void locate_packed(const Weight& weight, PackedProblem& problem);

}  // namespace hadal::cuda
