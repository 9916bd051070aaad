// y = W x for weights as published (bf16, FP8 in 32 x 32 blocks, MXFP4), dequantised inside, with fp32 sums.
//
// A row of y has the same bits however many rows are computed together (design decision 6): k is cut into at most
// eight segments by the weight's shape alone, a segment is summed by one chain of tensor core products in ascending k,
// and the segments are added in ascending order. Which kernel runs, and whether segments run side by side, is free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/cuda/context.h"
#include "ops/cuda/fp8_rows.h"
#include "ops/types.h"

namespace hadal::cuda {

struct LinearArgs {
  int rows = 0;
  const uint16_t* x = nullptr;     // bf16 [.., x_stride]
  int64_t x_stride = 0;            // elements
  const int32_t* x_row = nullptr;  // [rows] row of x, null = the same rows
  Weight w;
  // Block diagonal: group i reads columns [i * k, (i + 1) * k) of x and makes its n / groups outputs.
  int groups = 1;
  uint16_t* y = nullptr;   // bf16 [rows, y_stride], or
  float* y_f32 = nullptr;  // fp32 [rows, y_stride]
  int64_t y_stride = 0;
  const float* add = nullptr;  // fp32 [rows, y_stride], added to an fp32 result
  bool q1 = true;              // `official`: Q1 on the input of FP8 and FP4 weights
  // `fp8`, where reads_fp8() says so: Q4 of x, made once for several linears; then x and x_row are not read. And a place
  // for Q4 of the bf16 results instead of y, for the linear that reads them.
  Fp8Rows x_fp8;
  Fp8Rows y_fp8;
};

// A weight with `packed` set goes through packed_linear.h: FP8 weights of the release do, after prepare_weight.
void linear(CudaContext& context, const LinearArgs& args);
// Two linears that read the same rows: in one launch where both are FP8 by FP8 and of one shape, but for the few rows that
// such a kernel rounds itself, which has CTAs enough.
void linear_pair(CudaContext& context, const LinearArgs& first, const LinearArgs& second);

// Whether a linear with this weight multiplies FP8 by FP8 (fp8_linear.h).
bool reads_fp8(const CudaContext& context, const Weight& w, int groups = 1);
// And whether Q4 of its input is better made before: for few rows the kernel does it.
bool wants_fp8(const CudaContext& context, int rows, const Weight& w, int groups = 1);

// What `hadal tune` chooses among, for more rows than kMostNarrowRows: the kernel's name in its file, and its tiles.
inline constexpr int kMostNarrowRows = 128;
const char* tuned_kernel(bool fp8, bool rounded);
std::vector<std::string> tile_names(bool fp8, bool rounded);

// bf16 activations x [rows, k] into a new bf16 tensor or a given one.
LinearArgs linear_args(const Tensor& x, const Weight& w, const Tensor& y);

}  // namespace hadal::cuda
