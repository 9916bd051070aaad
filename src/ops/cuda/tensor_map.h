// Descriptions of matrices for the copy engine, which brings boxes of them to shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace hadal::cuda {

// A bf16 matrix [rows, columns] whose boxes are 64 columns (128 bytes, in 128-byte swizzle) of box_rows rows, at most 256.
// `data` is aligned to 16 bytes, `stride` (values from row to row) a multiple of 8. What lies past the end arrives as zeros.
CUtensorMap bf16_boxes(const uint16_t* data, int64_t rows, int64_t columns, int64_t stride, int box_rows);

// Rows of `parts` vectors of `columns` bf16 values each, behind each other, whose boxes are box_columns columns of all parts of
// box_rows rows, as [part][row][column]. `columns` and box_columns are multiples of 8.
CUtensorMap slice_boxes(const uint16_t* data, int64_t rows, int parts, int columns, int box_rows, int box_columns);

}  // namespace hadal::cuda
