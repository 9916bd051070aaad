#include "checkpoint/huge_pages.h"

#include <fmt/format.h>

#include <sys/utsname.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace hadal {

std::span<const std::byte> whole_huge_pages(std::span<const std::byte> part) {
  const size_t before = -reinterpret_cast<uintptr_t>(part.data()) % kHugePageBytes;
  const size_t behind = reinterpret_cast<uintptr_t>(part.data() + part.size()) % kHugePageBytes;
  if (before + behind >= part.size()) return {};
  return part.subspan(before, part.size() - before - behind);
}

std::string to_string(const HugePages& pages) {
  const bool gb = pages.possible >= 1'000'000'000;
  const double unit = gb ? 1e9 : 1e6;
  std::string text =
      fmt::format("{:.{}f} of {:.{}f} {} of weights lie in huge pages", static_cast<double>(pages.huge) / unit,
                  gb ? 2 : 0, static_cast<double>(pages.possible) / unit, gb ? 2 : 0, gb ? "GB" : "MB");
  if (pages.few()) text += "; the rest slows a CPU down by up to a fifth: start once with --reload";
  return text;
}

int64_t huge_bytes(std::istream& smaps, std::span<const std::span<const std::byte>> parts) {
  int64_t sum = 0, inside = 0;  // bytes of the mapping that belong to the parts
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long begin = 0, end = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      inside = 0;
      for (const auto& part : parts) {
        const auto first = reinterpret_cast<uintptr_t>(part.data()), last = first + part.size();
        const uintptr_t from = std::max<uintptr_t>(first, begin), to = std::min<uintptr_t>(last, end);
        if (from < to) inside += static_cast<int64_t>(to - from);
      }
    } else if (inside > 0 && std::sscanf(line.c_str(), "FilePmdMapped: %llu kB", &kilobytes) == 1) {
      // A mapping may reach beyond the parts; no more than them is counted.
      sum += std::min(inside, static_cast<int64_t>(kilobytes) * 1024);
    }
  }
  return sum;
}

bool huge_pages_for_files(uint64_t file_system, const std::string& release) {
  int major = 0, minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) return false;
  const auto since = [&](int want_major, int want_minor) {
    return major > want_major || (major == want_major && minor >= want_minor);
  };
  switch (file_system) {
    case 0xef53: return since(6, 16);      // ext4
    case 0x58465342: return since(5, 18);  // XFS
    default: return false;
  }
}

HugePages count_huge_pages(std::span<const std::span<const std::byte>> parts, const std::filesystem::path& file) {
  HugePages pages;
  for (const auto& part : parts) pages.possible += static_cast<int64_t>(part.size());
  std::ifstream smaps("/proc/self/smaps");
  pages.huge = huge_bytes(smaps, parts);
  struct utsname system = {};
  struct statfs where = {};
  std::error_code ignored;
  // Where some are huge, more can be, whatever the file system.
  pages.can_mend = pages.huge > 0 || (std::filesystem::exists("/sys/kernel/mm/transparent_hugepage", ignored) &&
                                      ::uname(&system) == 0 && ::statfs(file.c_str(), &where) == 0 &&
                                      huge_pages_for_files(static_cast<uint64_t>(where.f_type), system.release));
  return pages;
}

}  // namespace hadal
