// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hadal {

constexpr std::string_view index_file_name = "model.safetensors.index.json";

struct CheckpointIndex {
  std::unordered_map<std::string, std::string> weight_map;  // tensor name -> file name, without a folder
  std::optional<int64_t> total_size;                        // metadata.total_size: payload bytes of all tensors
  // metadata.checksums, written by `hadal synth` only: file name -> XXH3 of 64 bits as 16 hexadecimal digits.
  std::unordered_map<std::string, std::string> checksums;

  // Throws io, or invalid_data naming the member. File names with a folder in them are refused.
  static CheckpointIndex load(const std::filesystem::path& file);
  static CheckpointIndex parse(std::string_view text, std::string_view what);
};

}  // namespace hadal
