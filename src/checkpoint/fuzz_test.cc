// Random damage to headers, configurations and indexes.
#include "base/mutator.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/index.h"
#include "checkpoint/test_support.h"

namespace hadal {
namespace {

void read_image(const std::string& text) {
  const std::span<const std::byte> image = std::as_bytes(std::span(text));
  const SafetensorsHeader header = parse_safetensors(image, "fuzz");
  for (const TensorView& t : header.tensors) {
    ASSERT_GE(t.data, image.data() + header.data_begin);
    ASSERT_LE(t.data + t.bytes, image.data() + image.size());
    uint64_t size = type_size(t.type);
    for (const int64_t extent : t.shape) size *= uint64_t(extent);
    ASSERT_EQ(size, t.bytes);
  }
}

std::string small_image() {
  return test::image({{"a.weight", "F8_E4M3", {4, 8}, std::string(32, 'a')},
                      {"a.scale", "F8_E8M0", {1, 1}, "b"},
                      {"layers.0.norm", "BF16", {3}, std::string(6, 'c')},
                      {"scalar", "F32", {}, std::string(4, 'd')},
                      {"empty", "I8", {0, 5}, ""}});
}

TEST(Fuzz, SafetensorsImage) { survive(small_image(), 20000, 1, read_image); }

// The length field stays right, so that the damage reaches the JSON behind it.
TEST(Fuzz, SafetensorsHeader) {
  const std::string whole = small_image();
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  const std::string data = whole.substr(8 + length);
  const int accepted = survive(whole.substr(8, length), 20000, 2,
                               [&](const std::string& header) { read_image(test::image(header, data)); });
  EXPECT_GT(accepted, 100);  // or the mutations are too coarse to reach anything
}

TEST(Fuzz, Config) {
  const std::string text = read_text_file(test::source_path("tests/goldens/v41-a/config.json"));
  const int accepted = survive(text, 4000, 3, [](const std::string& t) {
    const V41Config c = V41Config::parse(t);
    for (int l = 0; l < c.layers(); ++l) ASSERT_LT(c.kv_source_of(l), c.layers());
  });
  EXPECT_GT(accepted, 20);
}

TEST(Fuzz, Index) {
  const std::string text =
      R"({"metadata":{"total_size":12,"checksums":{"a.safetensors":"0123"}},"weight_map":{"x":"a.safetensors","y":"b"}})";
  survive(text, 10000, 4, [](const std::string& t) { CheckpointIndex::parse(t, "fuzz"); });
}

TEST(Fuzz, DeepAndWideJson) {
  for (const std::string& open : {std::string("["), std::string("{\"a\":")}) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += open;
    EXPECT_THROW(parse_json(text, "bomb"), Error);
    EXPECT_THROW(V41Config::parse(text), Error);
  }
  EXPECT_THROW(parse_json("", "empty"), Error);
  EXPECT_THROW(parse_json("1 2", "two"), Error);
  EXPECT_NO_THROW(parse_json(" {\"a\": [1, 2]}\n", "white space"));
}

}  // namespace
}  // namespace hadal
