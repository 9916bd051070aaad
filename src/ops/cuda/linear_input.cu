#include "ops/cuda/linear_input.h"

#include "ops/cuda/errors.h"
#include "ops/cuda/linear.h"

namespace hadal::cuda {
namespace {

constexpr int kMostTileRows = 256;
int padded(int rows) { return (rows + 7) / 8 * 8; }

}  // namespace

size_t q4_bytes(int rows, int columns) {
  const size_t codes = static_cast<size_t>(padded(rows)) * static_cast<size_t>(columns);
  // A tile of rows reads scales of as many as it has room for, also behind the last row.
  return codes + sizeof(float) * (codes / 128 + kMostTileRows);
}

Fp8Rows fp8_rows(const Tensor& q4) {
  HADAL_CUDA_CHECK(q4.type == DType::u8 && q4.cols % 128 == 0);
  const int rows = static_cast<int>(q4.rows), columns = static_cast<int>(q4.cols);
  auto* const codes = static_cast<uint8_t*>(q4.data);
  auto* const scales =
      reinterpret_cast<float*>(codes + static_cast<size_t>(padded(rows)) * static_cast<size_t>(columns));
  return {codes, scales, rows, padded(rows), columns};
}

Fp8Rows fp8_rows(Scratch& scratch, int rows, int columns) {
  return fp8_rows({scratch.get<uint8_t>(q4_bytes(rows, columns)), DType::u8, rows, columns});
}

Tensor linear_input(Context& context, int rows, const Weight& w, int groups) {
  const int64_t columns = int64_t{groups} * w.k;
  if (!wants_fp8(CudaContext::of(context), rows, w, groups)) return context.activations(rows, columns);
  return {context.allocate_step(q4_bytes(rows, static_cast<int>(columns))), DType::u8, rows, columns};
}

}  // namespace hadal::cuda
