// y = W x in `fp8` numerics: FP8 weights and FP8 rows on the FP8 matrix instruction.
//
// Sums. The products of 128 of k are added by the tensor core, whose fp32 sums keep about 14 bits below the largest addend;
// that partial sum times the scales of row and weight (powers of two, so the product is exact) is added to an fp32 sum, in
// ascending k. The order is the same for any number of rows.
#pragma once

#include <span>

#include "ops/cuda/fp8_rows.h"
#include "ops/cuda/packing.h"
#include "ops/types.h"

namespace hadal::cuda {

// Of a weight that can_pack_fp8() holds for (packing.h).
size_t packed_fp8_bytes(const Weight& weight);
// Packs folded bytes (fold.h) that lie on the device into `packed`, aligned to 256 bytes; they are not read afterwards.
void pack_fp8(CudaContext& context, const Weight& weight, void* packed);

struct Fp8Problem {
  Fp8Rows x;  // [rows, groups * k]; without codes for few rows, when they come as
  const uint16_t* x_bf16 = nullptr;
  int64_t x_stride = 0;
  const int32_t* x_row = nullptr;  // [rows] row of x_bf16, null = the same rows
  int k = 0;                       // of one group
  int n = 0;
  int group_n = 0;                       // outputs that read the same k columns of x
  const uint8_t* weights = nullptr;      // [k / 128][n][128], chunks swizzled as in Fp8Rows
  const float* weight_scales = nullptr;  // [k / 128][n / 32]
  uint16_t* y = nullptr;                 // bf16 [rows, y_stride], or
  int64_t y_stride = 0;
  Fp8Rows quantised;  // Q4 of the bf16 results
  // The same rows by another weight of the same shape in the same launch; n = group_n, results are bf16, and rounds_rows()
  // does not hold.
  const uint8_t* second_weights = nullptr;
  const float* second_scales = nullptr;
  uint16_t* second_y = nullptr;
  int tile = -1;  // of more than 128 rows: one of fp8_wide_tiles, -1 = the one that a cost model expects to be fastest
};
void locate_packed_fp8(const Weight& weight, Fp8Problem& problem);
void locate_second_fp8(const Weight& weight, Fp8Problem& problem);
// Names of the tiles of more than 128 rows ("rows x outputs"), with or without `quantised` results. All give the same bits.
std::span<const char* const> fp8_wide_tiles(bool quantised);
void fp8_linear(const Fp8Problem& problem, int multiprocessors, cudaStream_t stream);
// Whether bf16 rows may be given: up to 8, which the kernel rounds itself.
bool rounds_rows(int rows, const Weight& weight);
// Whether fp8_linear may be asked for `quantised` results: with more than 128 rows, and whole groups of 128 outputs.
bool quantises_results(const Fp8Problem& problem);

}  // namespace hadal::cuda
