// A file mapped read-only for as long as the object lives.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace hadal {

class MappedFile {
 public:
  // Throws io naming the path and the reason. An empty file maps to an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace hadal
