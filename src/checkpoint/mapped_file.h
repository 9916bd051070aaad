// A file mapped read-only for as long as the object lives.
//
// The mapping starts at a multiple of 2 MB, so that the kernel can map huge pages of the page cache where the file system
// has them (ext4 since Linux 6.16, XFS, Btrfs). One Zen 4 core reads 30.6 GB/s from such pages and 24 from pages of 4 KB.
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

  // Asks for huge pages in a part of the file that is read in order: it is then read 2 MB at a time. Pages that are in the
  // page cache already stay as they are.
  static void use_huge_pages(std::span<const std::byte> part);
  // Drops a part from the page cache, as far as nobody else has it mapped.
  void drop_cached(std::span<const std::byte> part) const;
  // Reads a part into the page cache and maps it. Throws io.
  void read(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace hadal
