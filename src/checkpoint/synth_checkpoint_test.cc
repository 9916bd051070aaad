#include "checkpoint/synth_checkpoint.h"

#include "base/dtype.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/test_support.h"
#include "checkpoint/verify.h"

#include <cmath>

namespace hadal {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

// Root mean square of a weight times sqrt(columns), and of its column 0.
struct Moments {
  double rms, first_column;
};

Moments moments(const Checkpoint& c, const std::string& base) {
  const TensorView& w = c.tensor(base + ".weight");
  const TensorView* s = c.find(base + ".scale");
  const auto* bytes = reinterpret_cast<const uint8_t*>(w.data);
  const bool packed = w.type == TensorType::i8;
  const int64_t rows = w.shape[0], columns = w.shape[1] * (packed ? 2 : 1);
  double squares = 0, first = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float x = 0;
      if (w.type == TensorType::bf16) {
        x = from_bf16(reinterpret_cast<const uint16_t*>(w.data)[i * columns + j]);
      } else {
        const int64_t row = s->shape[0] == rows ? i : i / 32;
        const float scale = from_ue8m0(reinterpret_cast<const uint8_t*>(s->data)[row * s->shape[1] + j / 32]);
        const int64_t at = i * columns + j;
        x = scale * (packed ? from_e2m1(uint8_t(bytes[at / 2] >> (4 * (at % 2)))) : from_e4m3(bytes[at]));
      }
      squares += double(x) * double(x);
      if (j == 0) first += double(x) * double(x);
    }
  }
  return {std::sqrt(squares / double(rows)), std::sqrt(first / double(rows) * double(columns))};
}

std::string shard_bytes(const fs::path& dir) {
  std::string all;
  for (const char* i : {"1", "2", "3"})
    all += read_text_file(dir / fmt::format("model-0000{}-of-00003.safetensors", i)) + "|";
  return all;
}

TEST(Synth, DoesNotDependOnThreadsButOnTheSeed) {
  const TemporaryDirectory one, many, other;
  test::make_checkpoint(one.path(), 1);
  test::make_checkpoint(many.path(), 5);
  test::make_checkpoint(other.path(), 1, 2);
  EXPECT_EQ(shard_bytes(one.path()), shard_bytes(many.path()));
  EXPECT_NE(shard_bytes(one.path()), shard_bytes(other.path()));
}

TEST(Synth, ResumesAndRepairs) {
  const TemporaryDirectory directory;
  const fs::path& dir = directory.path();
  test::make_checkpoint(dir);
  const std::string before = shard_bytes(dir);
  const fs::path first = dir / "model-00001-of-00003.safetensors", second = dir / "model-00002-of-00003.safetensors";
  const auto kept_time = fs::last_write_time(first);
  fs::resize_file(second, 100);
  fs::remove(dir / "model.safetensors.index.json");
  test::make_checkpoint(dir);
  EXPECT_EQ(shard_bytes(dir), before);
  EXPECT_EQ(fs::last_write_time(first), kept_time);
  EXPECT_EQ(verify_checkpoint(Checkpoint::open(dir), 1).problem_count, 0);
  // Shards of another seed are not kept.
  test::make_checkpoint(dir, 1, 2);
  EXPECT_NE(shard_bytes(dir), before);
  EXPECT_EQ(verify_checkpoint(Checkpoint::open(dir), 1).problem_count, 0);
}

TEST(Synth, SplitsIntoShards) {
  const TemporaryDirectory directory;
  test::make_checkpoint(directory.path(), 2, 1, 200'000);
  const Checkpoint c = Checkpoint::open(directory.path());
  EXPECT_GT(c.shards().size(), 5u);
  for (const SafetensorsFile& shard : c.shards()) EXPECT_LE(shard.image().size() - shard.header_bytes(), 200'000u);
  EXPECT_EQ(verify_checkpoint(c, 2).problem_count, 0);
}

TEST(Synth, RefusesAFolderThatHoldsSomethingElse) {
  const TemporaryDirectory directory;
  test::write_file(directory.path() / "config.json", "{}");
  test::expect_contains(test::error_of([&] { test::make_checkpoint(directory.path()); }, ErrorKind::invalid_argument),
                        "another config.json");
  const fs::path file = directory.path() / "config.json";
  test::expect_contains(test::error_of([&] { test::make_checkpoint(file / "x"); }, ErrorKind::io),
                        "cannot create the folder");
}

TEST(Synth, KeepsActivationsOfOrderOne) {
  const TemporaryDirectory directory;
  const std::string text = read_text_file(test::source_path("tests/goldens/v41-a/config.json"));
  write_synthetic_checkpoint(V41Config::parse(text), text, directory.path(), {});
  const Checkpoint c = Checkpoint::open(directory.path());
  const auto near = [&](const std::string& base, double gain) {
    EXPECT_NEAR(moments(c, base).rms / gain, 1, 0.17) << base;
  };
  // 1.07 and more: blocks vary by 2^-0.7 to 2^0.7.
  near("layers.0.attn.wq_b", 1.07 * 1.5);
  near("layers.0.attn.wo_a", 1.07 * 1.3);
  near("layers.0.attn.wo_b", 1.07 * 0.6);
  near("layers.0.ffn.experts.1.w1", 1.07);
  near("layers.0.ffn.experts.1.w2", 1.07 * 0.7);
  near("mtp.0.main_proj", 1.07);
  near("layers.1.engram.embed", 1.15 * std::sqrt(32));
  near("head", 1.7);
  const Moments embed = moments(c, "embed"), wq_a = moments(c, "layers.0.attn.wq_a");
  EXPECT_NEAR(embed.first_column / (0.6 * 128), 1, 0.01);
  EXPECT_NEAR(wq_a.first_column / wq_a.rms, 2.5, 0.7);
  // Nothing writes residual channel 0: row 0 of every linear that ends in the residual stream is zero.
  for (const char* name :
       {"layers.0.attn.wo_b.weight", "layers.0.ffn.experts.3.w2.weight", "layers.0.ffn.shared_experts.w2.weight"}) {
    const TensorView& t = c.tensor(name);
    for (int64_t j = 0; j < t.shape[1]; ++j) ASSERT_EQ(t.data[j], std::byte{0}) << name;
  }
}

}  // namespace
}  // namespace hadal
