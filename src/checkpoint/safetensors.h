// Safetensors files, mapped read-only. Format: 8 bytes little-endian header length, a JSON object
// {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}, then the data.
// https://github.com/huggingface/safetensors#format
#pragma once

#include "checkpoint/mapped_file.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hadal {

enum class TensorType : uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64
};

size_t type_size(TensorType type);            // bytes of one element
std::string_view type_name(TensorType type);  // as safetensors spells it: "BF16", "F8_E4M3", ...
// Also knows the spellings "F8_E4M3FN" and "F8_E8M0FNU". False when the type is unknown.
bool parse_type(std::string_view name, TensorType& type);

struct TensorView {
  std::string_view name;
  TensorType type = TensorType::f32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // bytes = product(shape) * type_size(type)
  size_t bytes = 0;
};

std::string show_shape(std::span<const int64_t> shape);  // "[512, 128]"

struct SafetensorsLimits {
  // The format sets no limit; published shards stay below 2 MB, and a damaged length must not allocate the
  // machine.
  size_t max_header_bytes = size_t{256} << 20;
};

// The header of a safetensors image in memory; views point into the image. Everything is checked before this
// returns: the header's length and JSON, dtypes, begin <= end <= size, size = product(shape) * element size,
// no duplicate names, no overlap, no gap, no bytes after the last tensor. Throws invalid_data; messages start
// with `what`.
struct SafetensorsHeader {
  std::vector<TensorView> tensors;  // in order of their data
  std::vector<std::pair<std::string, std::string>> metadata;
  std::unique_ptr<char[]> names;  // storage of TensorView::name
  size_t data_begin = 0;          // offset of the first data byte in the image
};
SafetensorsHeader parse_safetensors(std::span<const std::byte> image, std::string_view what,
                                    const SafetensorsLimits& limits = {});

// A mapped file. Views stay valid while the object, or one that it was moved to, lives.
class SafetensorsFile {
 public:
  // Throws io when the file cannot be opened or mapped, invalid_data when the header is wrong.
  explicit SafetensorsFile(const std::filesystem::path& path, const SafetensorsLimits& limits = {});

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<TensorView>& tensors() const { return header_.tensors; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return header_.metadata; }
  const TensorView* find(std::string_view name) const;
  const MappedFile& file() const { return file_; }
  std::span<const std::byte> image() const { return file_.bytes(); }
  size_t header_bytes() const { return header_.data_begin; }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace hadal
