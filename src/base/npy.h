// NumPy .npy files of float32 and int32, C order, little endian: format versions 1 and 2.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace hadal {

template <typename T>
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<T> data;  // product(shape) values, last dimension fastest
};

// Throw io when the file cannot be read, invalid_data when it is damaged, is not C order or has another
// dtype.
NpyArray<float> read_npy_f32(const std::filesystem::path& path);
NpyArray<int32_t> read_npy_i32(const std::filesystem::path& path);

// Write through a temporary name in the same folder and rename, so that no half-written file carries the
// final name. Throw io naming the path and the reason. values.size() must be rows * columns.
void write_npy(const std::filesystem::path& path, std::span<const float> values, int64_t rows, int64_t columns);
void write_npy(const std::filesystem::path& path, std::span<const int32_t> values);  // one dimension

}  // namespace hadal
