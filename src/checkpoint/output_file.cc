#include "checkpoint/output_file.h"

#include "base/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace hadal {

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path), temporary_(path.string() + ".partial") {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(ErrorKind::io, "cannot write {}: {}", path_.string(), std::generic_category().message(errno));
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorKind::io, "cannot write {}: {}", path_.string(), std::generic_category().message(errno));
    bytes = bytes.subspan(size_t(n));
  }
}

void OutputFile::commit() {
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    fail(ErrorKind::io, "cannot write {}: {}", path_.string(), std::generic_category().message(reason));
  }
}

}  // namespace hadal
