#include "checkpoint/huge_pages.h"

#include <gtest/gtest.h>

#include <sstream>

namespace hadal {
namespace {

// A mapping that is never looked into.
std::span<const std::byte> part(uintptr_t begin, uintptr_t end) {
  return {reinterpret_cast<const std::byte*>(begin), end - begin};  // NOLINT(performance-no-int-to-ptr)
}

constexpr uintptr_t kBase = 0x7f0000000000, kPage = kHugePageBytes;

TEST(HugePages, WholeOnes) {
  const auto whole = whole_huge_pages(part(kBase + 1, kBase + 3 * kPage + 5));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(whole.data()), kBase + kPage);
  EXPECT_EQ(whole.size(), 2 * kPage);
  EXPECT_EQ(whole_huge_pages(part(kBase, kBase + kPage)).size(), kPage);
  EXPECT_TRUE(whole_huge_pages(part(kBase + 1, kBase + 2 * kPage - 1)).empty());
  EXPECT_TRUE(whole_huge_pages(part(kBase + 5, kBase + 9)).empty());
  EXPECT_TRUE(whole_huge_pages({}).empty());
}

// Of a shard the middle is read in order, and of another one all; the heap has huge pages too, and so has a mapping behind.
TEST(HugePages, AreCountedInTheMappingsThatAreRead) {
  std::istringstream smaps(
      "5581f2a00000-5581f2c00000 rw-p 00000000 00:00 0                          [heap]\n"
      "Size:               2048 kB\n"
      "FilePmdMapped:      2048 kB\n"
      "7f0000000000-7f0000200000 r--s 00000000 fe:00 12                         /models/a-b 0-1 c/shard\n"
      "FilePmdMapped:      2048 kB\n"
      "VmFlags: rd mr me ms sd \n"
      "7f0000200000-7f0000800000 r--s 00200000 fe:00 12                         /models/a-b 0-1 c/shard\n"
      "Rss:                6144 kB\n"
      "ShmemPmdMapped:     6144 kB\n"
      "FilePmdMapped:      4096 kB\n"
      "VmFlags: rd mr me ms sd hg \n"
      "7f0000a00000-7f0000e00000 r--s 00000000 fe:00 13                         /models/other\n"
      "FilePmdMapped:      4096 kB\n"
      "7f0001000000-7f0001200000 r--s 00000000 fe:00 14                         /models/behind\n"
      "FilePmdMapped:      2048 kB\n");
  const std::span<const std::byte> parts[] = {part(kBase + kPage, kBase + 4 * kPage),
                                              part(kBase + 5 * kPage, kBase + 6 * kPage)};
  EXPECT_EQ(huge_bytes(smaps, parts), static_cast<int64_t>(3 * kPage)) << "two of three pages, and one of one";
}

TEST(HugePages, WhatIsNotSmapsHasNone) {
  const std::span<const std::byte> parts[] = {part(kBase, kBase + kPage)};
  for (const char* text : {"", "\n\n", "FilePmdMapped: 2048 kB\n", "7f0000000000-\nFilePmdMapped: 2048 kB\n",
                           "7f0000000000-7f0000200000 r--s\nFilePmdMapped: much\n", "not a map\n"}) {
    std::istringstream smaps(text);
    EXPECT_EQ(huge_bytes(smaps, parts), 0) << text;
  }
}

TEST(HugePages, ARemedyIsNamedWhereThereIsOne) {
  const auto text = [](int64_t huge, bool can_mend) { return to_string(HugePages{1'710'000'000, huge, can_mend}); };
  EXPECT_EQ(text(1'680'000'000, true), "1.68 of 1.71 GB of weights lie in huge pages");
  EXPECT_EQ(text(1'540'000'000, true), "1.54 of 1.71 GB of weights lie in huge pages") << "just above 90%";
  EXPECT_EQ(text(1'110'000'000, true),
            "1.11 of 1.71 GB of weights lie in huge pages; the rest slows a CPU down by up to a fifth: start once with "
            "--reload");
  EXPECT_EQ(text(0, false), "0.00 of 1.71 GB of weights lie in huge pages");
  EXPECT_EQ(to_string(HugePages{140'000'000, 120'000'000, false}), "120 of 140 MB of weights lie in huge pages");
  EXPECT_FALSE((HugePages{14'000'000, 0, true}.few())) << "of weights that caches hold";
}

TEST(HugePages, KernelsAndFileSystems) {
  constexpr uint64_t kExt4 = 0xef53, kXfs = 0x58465342, kNfs = 0x6969;
  EXPECT_TRUE(huge_pages_for_files(kExt4, "6.16.0"));
  EXPECT_TRUE(huge_pages_for_files(kExt4, "7.0-rc1"));
  EXPECT_FALSE(huge_pages_for_files(kExt4, "6.1.0-28-amd64"));
  EXPECT_TRUE(huge_pages_for_files(kXfs, "6.1.0-28-amd64"));
  EXPECT_FALSE(huge_pages_for_files(kXfs, "5.10.0"));
  EXPECT_FALSE(huge_pages_for_files(kNfs, "7.1.0"));
  EXPECT_FALSE(huge_pages_for_files(kExt4, ""));
}

TEST(HugePages, WhatIsNotThereIsNoError) {
  EXPECT_EQ(count_huge_pages({}, "/nowhere").possible, 0);
  const std::span<const std::byte> parts[] = {part(kBase, kBase + kPage)};
  const HugePages pages = count_huge_pages(parts, "/nowhere");
  EXPECT_EQ(pages.possible, static_cast<int64_t>(kPage));
  EXPECT_FALSE(pages.few());
}

}  // namespace
}  // namespace hadal
