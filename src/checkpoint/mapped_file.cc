#include "checkpoint/mapped_file.h"

#include "base/error.h"
#include "checkpoint/huge_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace hadal {
namespace {

// Room for `bytes` at a multiple of a huge page; MAP_FAILED when there is none.
void* reserve_aligned(size_t bytes) {
  void* room = ::mmap(nullptr, bytes + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return room;
  auto* begin = static_cast<std::byte*>(room);
  std::byte* aligned = begin + (kHugePageBytes - reinterpret_cast<uintptr_t>(room) % kHugePageBytes) % kHugePageBytes;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), kept = (bytes + page - 1) / page * page;
  if (aligned != begin) ::munmap(begin, static_cast<size_t>(aligned - begin));
  if (std::byte* rest = aligned + kept; rest != begin + bytes + kHugePageBytes)
    ::munmap(rest, static_cast<size_t>(begin + bytes + kHugePageBytes - rest));
  return aligned;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorKind::io, "cannot open {}: {}", path.string(), std::generic_category().message(errno));
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail(ErrorKind::io, "cannot read {}: it is not a regular file", path.string());
  }
  if (info.st_size == 0) {
    ::close(fd);
    return;
  }
  void* address = reserve_aligned(size_t(info.st_size));
  if (address != MAP_FAILED) address = ::mmap(address, size_t(info.st_size), PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  const int reason = errno;
  ::close(fd);
  if (address == MAP_FAILED)
    fail(ErrorKind::io, "cannot map {} ({} bytes): {}", path.string(), info.st_size,
         std::generic_category().message(reason));
  bytes_ = {static_cast<const std::byte*>(address), size_t(info.st_size)};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::use_huge_pages(std::span<const std::byte> part) {
  const std::span<const std::byte> whole = whole_huge_pages(part);
  if (whole.empty()) return;
  // A kernel without huge pages says EINVAL, and reading works all the same.
  (void)::madvise(const_cast<std::byte*>(whole.data()), whole.size(), MADV_HUGEPAGE);
}

void MappedFile::drop_cached(std::span<const std::byte> part) const {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorKind::io, "cannot open {}: {}", path_.string(), std::generic_category().message(errno));
  // Pages that are mapped, or not yet written, would stay. The kernel drops whole pages only.
  (void)::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
  (void)::fdatasync(fd);
  (void)::posix_fadvise(fd, part.data() - bytes_.data(), static_cast<off_t>(part.size()), POSIX_FADV_DONTNEED);
  ::close(fd);
}

void MappedFile::read(std::span<const std::byte> part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const size_t before = reinterpret_cast<uintptr_t>(part.data()) % page;
  const std::byte* const begin = part.data() - before;  // of its page
  const size_t bytes = part.size() + before;
#ifdef MADV_POPULATE_READ
  if (::madvise(const_cast<std::byte*>(begin), bytes, MADV_POPULATE_READ) == 0) return;
  if (errno != EINVAL)
    fail(ErrorKind::io, "cannot read {}: {}", path_.string(), std::generic_category().message(errno));
#endif
  for (size_t at = 0; at < bytes; at += page)
    (void)*static_cast<const volatile std::byte*>(begin + at);  // before Linux 5.14
}

}  // namespace hadal
