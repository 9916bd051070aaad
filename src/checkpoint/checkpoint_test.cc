#include "checkpoint/checkpoint.h"

#include "checkpoint/test_support.h"
#include "checkpoint/verify.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

namespace hadal {
namespace {

namespace fs = std::filesystem;
using test::edit_shard;
using test::edit_text;
using test::error_of;
using test::expect_contains;
using test::named;
using test::RawTensor;
using test::source_path;

// A small valid checkpoint that each test damages.
class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    test::make_checkpoint(dir());
    shard_ = dir() / "model-00001-of-00003.safetensors";
  }
  const fs::path& dir() const { return directory_.path(); }
  std::string refusal(ErrorKind kind = ErrorKind::invalid_data) {
    return error_of([&] { Checkpoint::open(dir()); }, kind);
  }
  void rename(const std::string& from, const std::string& to) {
    edit_shard(shard_, [&](auto& tensors) { named(tensors, from).name = to; });
    edit_text(dir() / "model.safetensors.index.json", "\"" + from + "\"", "\"" + to + "\"");
  }
  fs::path shard_;

 private:
  test::TemporaryDirectory directory_;
};

TEST(Checkpoint, OpensTheGoldens) {
  for (const char* name : {"tests/goldens/v41-a", "tests/goldens/v41-c"}) {
    const Checkpoint c = Checkpoint::open(source_path(name));
    EXPECT_EQ(int(c.engram_token_map().size()), c.config().vocab_size);
    EXPECT_TRUE(c.unknown_tensors().empty());
    for (const ExpectedTensor& want : v41_inventory(c.config())) {
      const TensorView& t = c.tensor(want.name);
      EXPECT_EQ(t.shape, want.shape);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data) % type_size(t.type), 0u) << want.name;
    }
    EXPECT_EQ(verify_checkpoint(c, 2).problem_count, 0);
    expect_contains(error_of([&] { c.tensor("layers.99.attn.wkv.weight"); }), "no tensor layers.99.attn.wkv.weight");
    EXPECT_EQ(c.find("nothing"), nullptr);
  }
}

TEST(Checkpoint, ReloadingChangesNoByte) {
  const test::TemporaryDirectory directory;
  test::make_checkpoint(directory.path());
  const Checkpoint checkpoint = Checkpoint::open(directory.path());
  checkpoint.reload();
  for (const SafetensorsFile& shard : checkpoint.shards()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(shard.image().data()) % (size_t{2} << 20), 0u) << "where huge pages fit";
    std::ifstream file(shard.path(), std::ios::binary);
    const std::string read((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    ASSERT_EQ(read.size(), shard.image().size());
    EXPECT_EQ(std::memcmp(read.data(), shard.image().data(), read.size()), 0) << shard.path();
  }
}

// Kilobytes of mappings of a file that have pages.
int64_t mapped_kilobytes(const fs::path& file) {
  std::ifstream maps("/proc/self/smaps");
  int64_t sum = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) inside = line.ends_with(fs::canonical(file).string());
    if (inside && line.starts_with("Rss:")) sum += std::stoll(line.substr(4));
  }
  return sum;
}

TEST(Checkpoint, IsMappedAhead) {
  const fs::path directory = source_path("tests/goldens/v41-a");
  Checkpoint checkpoint = Checkpoint::open(directory);
  int64_t bytes = 0;
  for (const SafetensorsFile& shard : checkpoint.shards()) bytes += static_cast<int64_t>(shard.image().size());
  const auto mapped = [&] {
    int64_t sum = 0;
    for (const SafetensorsFile& shard : checkpoint.shards()) sum += mapped_kilobytes(shard.path());
    return 1024 * sum;
  };
  for (int i = 0; i < 2; ++i) checkpoint.map_ahead();  // the second call finds it under way
  int64_t done = -1, all = 0, heard = 0;
  checkpoint.wait_until_mapped([&](uint64_t now, uint64_t total) {
    EXPECT_GE(static_cast<int64_t>(now), done);
    done = static_cast<int64_t>(now);
    all = static_cast<int64_t>(total);
    ++heard;
  });
  // All but the rows of embedding and Engram.
  EXPECT_GE(mapped(), bytes / 2);
  EXPECT_GT(all, bytes / 2);
  EXPECT_LT(all, bytes);
  EXPECT_EQ(done, all) << "and the last to be told is that nothing is left";
  EXPECT_GE(heard, 1);
  // And it ends when its checkpoint does, done or not.
  for (int i = 0; i < 20; ++i) Checkpoint::open(directory).map_ahead();
}

// Of the embedded model: whatever this kernel and this file system make of it, the numbers fit together.
TEST(Checkpoint, CountsItsHugePages) {
  Checkpoint checkpoint = Checkpoint::open(source_path("models/hadal-tiny"));
  checkpoint.wait_until_mapped([](uint64_t, uint64_t) { FAIL() << "nothing is under way"; });
  EXPECT_EQ(checkpoint.huge_pages(), std::nullopt);
  int64_t bytes = 0;
  for (const SafetensorsFile& shard : checkpoint.shards()) bytes += static_cast<int64_t>(shard.image().size());
  std::optional<HugePages> told;
  checkpoint.map_ahead(/*count=*/true, [&](const HugePages& pages) { told = pages; });
  checkpoint.wait_until_mapped();
  const std::optional<HugePages> pages = checkpoint.huge_pages();
  ASSERT_TRUE(pages && told);
  EXPECT_GT(pages->possible, 0);
  EXPECT_LE(pages->possible, bytes);
  EXPECT_EQ(pages->possible % static_cast<int64_t>(kHugePageBytes), 0);
  EXPECT_GE(pages->huge, 0);
  EXPECT_LE(pages->huge, pages->possible);
  EXPECT_EQ(told->huge, pages->huge);
}

// What has just been read again is not to be read again.
TEST(Checkpoint, NoRemedyIsNamedTwice) {
  Checkpoint checkpoint = Checkpoint::open(source_path("models/hadal-tiny"));
  checkpoint.reload();
  checkpoint.map_ahead(/*count=*/true);
  checkpoint.wait_until_mapped();
  ASSERT_TRUE(checkpoint.huge_pages());
  EXPECT_FALSE(checkpoint.huge_pages()->can_mend);
}

TEST(Checkpoint, RefusesForeignFilesByName) {
  const test::TemporaryDirectory directory;
  const fs::path& dir = directory.path();
  const auto refusal = [&](const fs::path& path, ErrorKind kind) {
    return error_of([&] { Checkpoint::open(path); }, kind);
  };
  expect_contains(refusal(dir / "absent", ErrorKind::io), "no checkpoint at");
  expect_contains(refusal(dir, ErrorKind::io), "no config.json");
  test::write_file(dir / "model.gguf", "GGUF");
  expect_contains(refusal(dir, ErrorKind::unsupported), "GGUF");
  expect_contains(refusal(dir / "model.gguf", ErrorKind::unsupported), "GGUF");
  fs::remove(dir / "model.gguf");
  test::write_file(dir / "pytorch_model.bin", "");
  expect_contains(refusal(dir, ErrorKind::unsupported), "PyTorch");
  test::write_file(dir / "adapter_config.json", "{}");
  expect_contains(refusal(dir, ErrorKind::unsupported), "LoRA");
  test::write_file(dir / "one.safetensors", "");
  expect_contains(refusal(dir / "one.safetensors", ErrorKind::invalid_argument), "give the folder");
}

TEST_F(Damaged, IsValidAtFirst) {
  const Checkpoint c = Checkpoint::open(dir());
  EXPECT_EQ(c.copied_bytes(), 0u);  // wide types come first in each shard
  const VerifyReport report = verify_checkpoint(c, 2);
  EXPECT_EQ(report.problem_count, 0);
  EXPECT_EQ(report.files_with_checksum, 3);
  EXPECT_TRUE(report.has_total_size);
}

TEST_F(Damaged, MissingFiles) {
  fs::remove(shard_);
  expect_contains(refusal(ErrorKind::io), shard_.string());
  fs::remove(dir() / "model.safetensors.index.json");
  expect_contains(refusal(ErrorKind::io), "model.safetensors.index.json");
}

TEST_F(Damaged, TruncatedAndEmptyShards) {
  fs::resize_file(shard_, fs::file_size(shard_) - 1);
  expect_contains(refusal(), "truncated");
  fs::resize_file(shard_, 1000);
  expect_contains(refusal(), "goes beyond the file");
  fs::resize_file(shard_, 0);
  expect_contains(refusal(), "empty");
}

TEST_F(Damaged, MissingExpertScale) {
  const std::string name = "layers.3.ffn.experts.2.w1.scale";
  edit_shard(shard_,
             [&](auto& tensors) { std::erase_if(tensors, [&](const RawTensor& t) { return t.name == name; }); });
  expect_contains(refusal(), "places tensor " + name);
  edit_text(dir() / "model.safetensors.index.json", "\"" + name + "\": \"model-00001-of-00003.safetensors\",\n", "");
  expect_contains(refusal(), "tensor " + name + " is missing: the block scales of layers.3.ffn.experts.2.w1.weight");
}

TEST_F(Damaged, MissingIndexEntry) {
  edit_text(dir() / "model.safetensors.index.json", "\"embed.weight\": \"model-00001-of-00003.safetensors\",\n", "");
  const std::string message = refusal();
  expect_contains(message, "no entry for tensor embed.weight");
}

TEST_F(Damaged, IndexNamesAnotherShard) {
  edit_text(dir() / "model.safetensors.index.json", "\"norm.weight\": \"model-00001-of-00003.safetensors\"",
            "\"norm.weight\": \"model-00002-of-00003.safetensors\"");
  expect_contains(refusal(), "it is in model-00001-of-00003.safetensors");
}

TEST_F(Damaged, IndexLeavesTheFolder) {
  edit_text(dir() / "model.safetensors.index.json", "\"norm.weight\": \"model", "\"norm.weight\": \"../model");
  expect_contains(refusal(), "file beside the index");
}

TEST_F(Damaged, WrongDtypeAndShape) {
  edit_shard(shard_, [](auto& tensors) { named(tensors, "layers.0.attn.wkv.weight").type = "I8"; });
  expect_contains(refusal(), "layers.0.attn.wkv.weight has dtype I8, expected F8_E4M3");
  edit_shard(shard_, [](auto& tensors) {
    named(tensors, "layers.0.attn.wkv.weight").type = "F8_E4M3";
    std::swap(named(tensors, "layers.0.attn.wkv.weight").shape[0], named(tensors, "layers.0.attn.wkv.weight").shape[1]);
  });
  expect_contains(refusal(), "has shape [64, 32], expected [32, 64]");
}

TEST_F(Damaged, FloatScales) {
  edit_shard(shard_, [](auto& tensors) {
    RawTensor& t = named(tensors, "layers.0.attn.wo_b.scale");
    t.type = "F32";
    t.bytes.resize(t.bytes.size() * 4);
  });
  expect_contains(refusal(), "layers.0.attn.wo_b.scale has dtype F32, expected F8_E8M0");
}

TEST_F(Damaged, LargeBlocks) {
  edit_shard(shard_, [](auto& tensors) {
    RawTensor& t = named(tensors, "layers.0.attn.wo_b.scale");  // of a [64, 64] weight
    t.shape = {1, 1};
    t.bytes.resize(1);
  });
  expect_contains(refusal(), "64x64 blocks, expected [2, 2] for 32x32 blocks");
}

TEST_F(Damaged, BytesUnderTheNameU8) {
  edit_shard(shard_, [](auto& tensors) {
    named(tensors, "layers.3.ffn.experts.2.w1.scale").type = "U8";
    named(tensors, "layers.3.ffn.experts.2.w1.weight").type = "U8";
  });
  EXPECT_NO_THROW(Checkpoint::open(dir()));
}

TEST_F(Damaged, TensorInTwoShards) {
  edit_shard(dir() / "model-00002-of-00003.safetensors", [](auto& tensors) {
    tensors.push_back({"norm.weight", "BF16", {64}, std::string(128, 'x')});
  });
  expect_contains(refusal(), "norm.weight is in two shards");
}

TEST_F(Damaged, UnknownTensorsAreListedAndVisionIsLeftAlone) {
  edit_shard(shard_, [](auto& tensors) {
    tensors.push_back({"layers.0.attn.extra", "U8", {1}, "x"});
    tensors.push_back({"vision.norm.weight", "BF16", {1}, "xx"});
  });
  EXPECT_EQ(Checkpoint::open(dir()).unknown_tensors(), std::vector<std::string>{"layers.0.attn.extra"});
}

TEST_F(Damaged, RenamedTensors) {
  rename("layers.0.attn.wo_b.scale", "layers.0.attn.wo_b.weight_scale_inv");
  expect_contains(refusal(), "stands for layers.0.attn.wo_b.scale under another name");
  rename("layers.0.attn.wo_b.weight_scale_inv", "layers.0.attn.wo_b.scale");
  rename("norm.weight", "model.norm.weight");
  expect_contains(refusal(), "model.norm.weight stands for norm.weight");
}

TEST_F(Damaged, TokenMap) {
  fs::remove(dir() / "engram_token_map.npy");
  EXPECT_TRUE(Checkpoint::open(dir()).engram_token_map().empty());
  fs::copy_file(source_path("tests/goldens/v41-a/engram_token_map.npy"), dir() / "engram_token_map.npy");
  expect_contains(refusal(), "has shape [512], expected vocab_size, [256]");
}

TEST_F(Damaged, ScaleBytes) {
  const char* name = "layers.3.ffn.experts.2.w1.scale";
  edit_shard(shard_, [&](auto& tensors) { named(tensors, name).bytes[3] = '\xff'; });
  const Checkpoint c = Checkpoint::open(dir());
  const std::string message = error_of([&] { check_scales(c.tensor(name), TensorType::i8); });
  expect_contains(message, fmt::format("tensor {}: row 1, column 1 has scale byte 255", name));
  const VerifyReport report = verify_checkpoint(c, 1);
  EXPECT_EQ(report.problem_count, 2);  // the checksum says so too
  expect_contains(report.problems[0], "has checksum");
  expect_contains(report.problems[1], name);
}

TEST_F(Damaged, Values) {
  edit_shard(shard_, [&](auto& tensors) {
    named(tensors, "layers.0.attn.wkv.weight").bytes[65] = '\x7f';
    named(tensors, "layers.0.attn.wkv.scale").bytes[0] = '\xf7';  // 247: 448 * 2^120 overflows
    named(tensors, "norm.weight").bytes[3] = '\x7f';
    named(tensors, "norm.weight").bytes[2] = '\x80';
    named(tensors, "layers.0.hc_attn_base").bytes.replace(4, 4, std::string("\0\0\xc0\x7f", 4));
  });
  std::string all;
  for (const std::string& p : verify_checkpoint(Checkpoint::open(dir()), 1).problems) all += p + "\n";
  expect_contains(all, "layers.0.attn.wkv.weight: row 1, column 1 has E4M3 code 0x7f");
  expect_contains(all, "layers.0.attn.wkv.scale: row 0, column 0 has scale byte 247");
  expect_contains(all, "norm.weight: row 0, column 1 has a BF16 value that is not finite");
  expect_contains(all, "layers.0.hc_attn_base: row 0, column 1 has an F32 value that is not finite");
}

}  // namespace
}  // namespace hadal
