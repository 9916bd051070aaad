// How much of a mapped checkpoint the kernel holds in huge pages. A page cache that lost a part of a file and read it again
// 4 KB at a time shows nowhere else than in slower steps: a CPU decoded 8% slower with 1.11 of 1.71 GB in huge pages than
// with 1.68 (docs/performance.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <span>
#include <string>
#include <vector>

namespace hadal {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// The whole huge pages of a part of a mapping; empty where there is none.
std::span<const std::byte> whole_huge_pages(std::span<const std::byte> part);

struct HugePages {
  int64_t possible = 0;   // bytes in whole huge pages
  int64_t huge = 0;       // of these, mapped as such
  bool can_mend = false;  // reading the files again makes more of them

  // Smaller weights are read from caches, about as fast from either kind.
  bool matter() const { return possible >= int64_t{64} << 20; }
  // Too few of them, and something can be done about it.
  bool few() const { return matter() && can_mend && static_cast<double>(huge) < 0.9 * static_cast<double>(possible); }
};
// "1.11 of 1.71 GB of weights lie in huge pages", and a remedy where there is one.
std::string to_string(const HugePages& pages);

// What /proc/self/smaps says of these parts of mappings (FilePmdMapped).
int64_t huge_bytes(std::istream& smaps, std::span<const std::span<const std::byte>> parts);
// Whether this kernel holds files of this file system in huge pages, as far as that is known. `release`: of uname.
bool huge_pages_for_files(uint64_t file_system, const std::string& release);

// Of parts of mapped files that have been read. What the system does not tell counts as small pages without remedy.
HugePages count_huge_pages(std::span<const std::span<const std::byte>> parts, const std::filesystem::path& file);

}  // namespace hadal
