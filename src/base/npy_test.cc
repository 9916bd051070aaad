#include "base/npy.h"

#include "base/error.h"
#include "base/mutator.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace hadal {
namespace {

class Npy : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "hadal-npy-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    file_ = directory_ / "a.npy";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string contents() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& text) const { std::ofstream(file_, std::ios::binary) << text; }
  std::string refusal() const {
    try {
      read_npy_f32(file_);
    } catch (const Error& error) { return error.what(); }
    return "no error";
  }

  std::filesystem::path directory_, file_;
};

TEST_F(Npy, RoundTrip) {
  const std::vector<float> values = {1, -2.5, 3, 4, 5e-30f, 6};
  write_npy(file_, values, 2, 3);
  const NpyArray<float> back = read_npy_f32(file_);
  EXPECT_EQ(back.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(back.data, values);
  EXPECT_EQ(std::filesystem::file_size(file_) % 8, 0u);
  EXPECT_EQ(contents().substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  write_npy(file_, std::vector<int32_t>{7, -8});
  EXPECT_EQ(read_npy_i32(file_).data, (std::vector<int32_t>{7, -8}));
  EXPECT_EQ(read_npy_i32(file_).shape, std::vector<int64_t>{2});
  EXPECT_NE(refusal().find("dtype"), std::string::npos);
  write_npy(file_, std::vector<float>{}, 0, 5);
  EXPECT_TRUE(read_npy_f32(file_).data.empty());
}

// Damage anywhere, the sizes in the header included.
TEST_F(Npy, DamagedFiles) {
  write_npy(file_, std::vector<float>{1, 2, 3, 4, 5, 6}, 2, 3);
  const int accepted = survive(contents(), 5000, 1, [&](const std::string& text) {
    put(text);
    const NpyArray<float> array = read_npy_f32(file_);
    int64_t values = 1;
    for (const int64_t extent : array.shape) values *= extent;
    ASSERT_EQ(values, static_cast<int64_t>(array.data.size()));
  });
  EXPECT_GT(accepted, 100);
}

TEST_F(Npy, UnwritableOutputNamesThePath) {
  try {
    write_npy("/nonexistent/x.npy", std::vector<float>{1}, 1, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "cannot write /nonexistent/x.npy: No such file or directory");
  }
}

TEST_F(Npy, RefusesDamage) {
  write_npy(file_, std::vector<float>{1, 2}, 1, 2);
  const std::string good = contents();
  put(good.substr(0, good.size() - 1));
  EXPECT_NE(refusal().find("needs 8 bytes, but the file has 7"), std::string::npos) << refusal();
  put(good.substr(0, 20));
  EXPECT_NE(refusal().find("truncated"), std::string::npos);
  put("not numpy");
  EXPECT_NE(refusal().find("not a .npy file"), std::string::npos);
  std::filesystem::remove(file_);
  EXPECT_NE(refusal().find("cannot open"), std::string::npos);
  // Random damage parses or throws Error.
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::string text = good;
    for (int n = 0; n < 3; ++n) text[random() % text.size()] = char(random());
    put(text);
    refusal();
  }
}

}  // namespace
}  // namespace hadal
