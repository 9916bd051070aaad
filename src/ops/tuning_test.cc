#include "ops/tuning.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace hadal {
namespace {

TEST(Tuning, TakesTheNextMeasuredNumberOfRows) {
  Tuning tuning;
  tuning.set({"fp8_wide", 2048, 5120, 512}, {"128x128", 0.01});
  tuning.set({"fp8_wide", 2048, 5120, 4096}, {"256x128", 0.05});
  tuning.set({"fp8_wide", 2048, 6144, 64}, {"128x192", 0.05});
  const auto name = [&](int n, int k, int rows) {
    const Tuning::Choice* found = tuning.find({"fp8_wide", n, k, rows});
    return found == nullptr ? "" : found->name;
  };
  EXPECT_EQ(name(2048, 5120, 1), "128x128");
  EXPECT_EQ(name(2048, 5120, 512), "128x128");
  EXPECT_EQ(name(2048, 5120, 513), "256x128");
  EXPECT_EQ(name(2048, 5120, 9000), "256x128");
  EXPECT_EQ(name(2048, 6144, 9000), "128x192");
  EXPECT_EQ(name(2048, 1024, 512), "");
  EXPECT_EQ(name(1024, 5120, 512), "");
  EXPECT_EQ(tuning.find({"packed_wide", 2048, 5120, 512}), nullptr);
}

TEST(Tuning, FileAndBack) {
  Tuning tuning;
  tuning.card = "NVIDIA H200";
  tuning.set({"fp8_wide", 2048, 5120, 512}, {"128x128", 0.0125});
  const Tuning read = Tuning::parse(tuning.text(), "t");
  EXPECT_EQ(read.card, tuning.card);
  EXPECT_EQ(read.text(), tuning.text());
  EXPECT_EQ(tuning_file_of("NVIDIA H200"), "tuning/NVIDIA-H200.txt");
}

TEST(Tuning, DamagedFilesSayWhere) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      Tuning::parse(text, "some.txt");
    } catch (const Error& e) { return e.what(); }
    return "taken";
  };
  EXPECT_NE(message("").find("some.txt, line 1"), std::string::npos);
  EXPECT_NE(message("hadal-tuning 2\n").find("'hadal-tuning 2', expected hadal-tuning 1"), std::string::npos);
  EXPECT_NE(message("hadal-tuning 1\n").find("card NAME"), std::string::npos);
  EXPECT_NE(message("hadal-tuning 1\ncard \n").find("line 2"), std::string::npos);
  for (const char* line : {"fp8_wide 1 2 3", "fp8_wide 1 2 3 a x", "fp8_wide 0 2 3 a 1", "fp8_wide 1 2 3 a 1 more"})
    EXPECT_NE(message(std::string("hadal-tuning 1\ncard X\n") + line + "\n").find("line 3"), std::string::npos) << line;
  EXPECT_EQ(message("hadal-tuning 1\ncard X\n\n"), "taken");
}

TEST(Tuning, AFileForAnotherCardIsRefused) {
  EXPECT_THROW(use_tuning("/nonexistent/tuning.txt"), Error);
  EXPECT_THROW(use_tuning("/proc/version"), Error);  // no tuning file
  const std::filesystem::path file = std::filesystem::temp_directory_path() / fmt::format("tuning-{}.txt", ::getpid());
  std::ofstream(file) << "hadal-tuning 1\ncard NVIDIA H100\nfp8 512 5120 4096 128x128 0.02\n";
  use_tuning(file);
  std::filesystem::remove(file);  // it has been read
  EXPECT_EQ(load_tuning("NVIDIA H100").choices().size(), 1u);
  EXPECT_THROW(load_tuning("NVIDIA H200"), Error);
  use_tuning("off");
  EXPECT_TRUE(load_tuning("NVIDIA H100").choices().empty());
  use_tuning("auto");
  EXPECT_TRUE(load_tuning("No such card").choices().empty());
}

}  // namespace
}  // namespace hadal
