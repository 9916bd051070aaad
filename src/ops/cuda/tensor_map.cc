#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include "ops/cuda/errors.h"

namespace hadal::cuda {
namespace {

// Of the driver, found at run time: programs link the runtime library alone.
auto encoder() {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result{};
  HADAL_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &result));
  HADAL_CUDA_CHECK(result == cudaDriverEntryPointSuccess && address != nullptr);
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(address);
}

}  // namespace

CUtensorMap bf16_boxes(const uint16_t* data, int64_t rows, int64_t columns, int64_t stride, int box_rows) {
  static const auto encode = encoder();
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * sizeof(uint16_t)};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<uint16_t*>(data), sizes, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HADAL_CUDA_CHECK(result == CUDA_SUCCESS);
  return map;
}

CUtensorMap slice_boxes(const uint16_t* data, int64_t rows, int parts, int columns, int box_rows, int box_columns) {
  static const auto encode = encoder();
  CUtensorMap map;
  const cuuint64_t row = static_cast<cuuint64_t>(parts) * columns;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(parts)};
  const cuuint64_t strides[2] = {row * sizeof(uint16_t), static_cast<cuuint64_t>(columns) * sizeof(uint16_t)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(parts)},
                   steps[3] = {1, 1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<uint16_t*>(data), sizes, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HADAL_CUDA_CHECK(result == CUDA_SUCCESS);
  return map;
}

}  // namespace hadal::cuda
#endif
