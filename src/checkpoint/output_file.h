// A file that is written under a temporary name and gets its own when it is complete.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace hadal {

class OutputFile {
 public:
  // Opens `path`.partial. Throws io naming the path and the reason, as every member does.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();  // removes the temporary file unless it was committed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
};

}  // namespace hadal
