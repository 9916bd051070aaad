// Descriptions of matrices for the copy engine, which brings boxes of them to shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace hadal::cuda {

// A bf16 matrix [rows, columns] whose boxes are 64 columns (128 bytes, in 128-byte swizzle) of box_rows rows, at most 256.
// `data` is aligned to 16 bytes, `stride` (values from row to row) a multiple of 8. What lies past the end arrives as zeros.
CUtensorMap bf16_boxes(const uint16_t* data, int64_t rows, int64_t columns, int64_t stride, int box_rows);

}  // namespace hadal::cuda
