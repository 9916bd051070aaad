#include "checkpoint/safetensors.h"

#include "checkpoint/test_support.h"

namespace hadal {
namespace {

using test::error_of;
using test::expect_contains;
using test::image;

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string refusal(const std::string& file, const SafetensorsLimits& limits = {}) {
  return error_of([&] { parse_safetensors(bytes(file), "x.safetensors", limits); });
}

std::string tensor(const char* name, const char* type, const char* shape, const char* offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, type, shape, offsets);
}

TEST(Safetensors, ReadsTensorsInOrderOfTheirData) {
  const std::string header = std::string("{") + tensor("b", "BF16", "[2,3]", "[4,16]") + "," +
                             tensor("a", "F32", "[]", "[0,4]") + "," + tensor("none", "I8", "[0,7]", "[16,16]") +
                             R"(,"__metadata__":{"format":"pt"}}   )";
  const std::string file = image(header, std::string(16, 'x'));
  const SafetensorsHeader h = parse_safetensors(bytes(file), "x");
  ASSERT_EQ(h.tensors.size(), 3u);
  EXPECT_EQ(h.tensors[0].name, "a");
  EXPECT_EQ(h.tensors[0].bytes, 4u);
  EXPECT_EQ(h.tensors[1].name, "b");
  EXPECT_EQ(h.tensors[1].type, TensorType::bf16);
  EXPECT_EQ(h.tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(h.tensors[1].data, bytes(file).data() + h.data_begin + 4);
  EXPECT_EQ(h.tensors[2].bytes, 0u);
  ASSERT_EQ(h.metadata.size(), 1u);
  EXPECT_EQ(h.metadata[0].second, "pt");
}

TEST(Safetensors, KnowsEverySpellingOfTypes) {
  for (const char* name : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "I16", "U16", "F16", "BF16", "I32",
                           "U32", "F32", "F64", "I64", "U64"}) {
    TensorType type = TensorType::f32;
    ASSERT_TRUE(parse_type(name, type)) << name;
    EXPECT_EQ(type_name(type), name);
  }
  TensorType type = TensorType::f32;
  EXPECT_TRUE(parse_type("F8_E4M3FN", type) && type == TensorType::f8_e4m3);
  EXPECT_TRUE(parse_type("F8_E8M0FNU", type) && type == TensorType::f8_e8m0);
  EXPECT_FALSE(parse_type("bf16", type));
}

TEST(Safetensors, RefusesDamagedFiles) {
  const std::string one = std::string("{") + tensor("a", "U8", "[4]", "[0,4]") + "}";
  expect_contains(refusal(""), "empty");
  expect_contains(refusal("1234"), "too few");
  expect_contains(refusal(image(one, "123")), "truncated");
  expect_contains(refusal(test::header_length(1000) + "{}"), "goes beyond the file");
  expect_contains(refusal(test::header_length(uint64_t{1} << 63) + "{}"), "9223372036854775808 goes beyond the file");
  expect_contains(refusal(test::header_length(~uint64_t{0}) + "{}"), "goes beyond the file");
  expect_contains(refusal(image("", "")), "does not start");
  expect_contains(refusal(image("[]", "")), "does not start");
  expect_contains(refusal(image(one, "1234"), {.max_header_bytes = 8}), "above the limit of 8 bytes");
  expect_contains(refusal(image(one, "12345")), "1 bytes after the last tensor");
  expect_contains(refusal(image("{\"a\":", "")), "not valid JSON");
  expect_contains(refusal(image("{}x", "")), "not valid JSON");
  expect_contains(refusal(image("{\"\xff\":1}", "")), "not valid JSON");
  expect_contains(
      refusal(image(std::string("{\"a\":") + std::string(100000, '[') + std::string(100000, ']') + "}", "")),
      "not valid JSON");
  expect_contains(
      error_of([] { parse_safetensors(bytes(std::string("GGUF\3\0\0\0\0\0\0\0", 12)), "x"); }, ErrorKind::unsupported),
      "GGUF");
}

TEST(Safetensors, RefusesWrongDescriptions) {
  const auto with = [](const std::string& tensors, size_t size) {
    return refusal(image(std::string("{") + tensors + "}", std::string(size, 'x')));
  };
  expect_contains(with(tensor("a", "U8", "[4]", "[4,0]"), 4), "reversed");
  expect_contains(with(tensor("a", "U8", "[5]", "[0,5]"), 4), "only 4 data bytes");
  expect_contains(with(tensor("a", "BF16", "[4]", "[0,4]"), 4), "occupies 4 bytes, but BF16 [4] needs 8");
  expect_contains(with(tensor("a", "F4_E2M1", "[4]", "[0,4]"), 4), "unknown dtype \"F4_E2M1\"");
  expect_contains(with(tensor("a", "U8", "[4294967296,4294967296]", "[0,4]"), 4), "overflows");
  expect_contains(with(tensor("a", "F64", "[2305843009213693952]", "[0,4]"), 4), "overflows");
  expect_contains(with(tensor("a", "U8", "[-4]", "[0,4]"), 4), "not negative");
  expect_contains(with(tensor("a", "U8", "[4.5]", "[0,4]"), 4), "not negative");
  expect_contains(with(tensor("a", "U8", "4", "[0,4]"), 4), "expected an array");
  expect_contains(with(tensor("a", "U8", "[4]", "[0]"), 4), "has 1 data_offsets");
  expect_contains(with(tensor("a", "U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]"), 4), "9 dimensions");
  expect_contains(with(R"("a":{"dtype":"U8","shape":[4]})", 4), "no \"data_offsets\"");
  expect_contains(with(R"("a":7)", 4), "expected an object");
  expect_contains(with(R"("__metadata__":{"a":1})", 0), "expected strings");
  const std::string a = tensor("a", "U8", "[4]", "[0,4]");
  expect_contains(with(a + "," + a, 4), "\"a\" appears twice");
  expect_contains(with(a + "," + tensor("b", "U8", "[4]", "[2,6]"), 6), "a and b overlap");
  expect_contains(with(a + "," + tensor("b", "U8", "[4]", "[0,4]"), 4), "overlap");
  expect_contains(with(a + "," + tensor("b", "U8", "[2]", "[6,8]"), 8), "2 bytes before tensor b belong to no tensor");
}

TEST(Safetensors, MapsAFile) {
  const SafetensorsFile file(test::source_path("tests/goldens/v41-a/model-00001-of-00005.safetensors"));
  const TensorView* embed = file.find("embed.weight");
  ASSERT_NE(embed, nullptr);
  EXPECT_EQ(embed->shape, (std::vector<int64_t>{512, 128}));
  EXPECT_EQ(file.find("nothing"), nullptr);
  SafetensorsFile moved = SafetensorsFile(file.path());
  EXPECT_NE(moved.find("embed.weight"), nullptr);
  expect_contains(error_of([] { SafetensorsFile("/nonexistent/x"); }, ErrorKind::io), "/nonexistent/x");
  expect_contains(error_of([] { SafetensorsFile("/tmp"); }, ErrorKind::io), "not a regular file");
}

}  // namespace
}  // namespace hadal
