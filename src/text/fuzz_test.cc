// Random damage to tokenizer.json, and to the JSON of strangers.
#include "base/mutator.h"
#include "text/test_support.h"

namespace hadal::text {
namespace {

constexpr int kRounds = 500;

// Of a damaged file that is accepted every function works.
TEST(Fuzz, TokenizerFile) {
  const std::string good = read_text(testdata("tokenizer.json"));
  // Half of the damage hits the settings and the added tokens, which are a small part of the file.
  const std::size_t vocabulary = good.find("\"vocab\"");
  ASSERT_NE(vocabulary, std::string::npos);
  const auto read = [](const std::string& json) {
    const Tokenizer tokenizer = Tokenizer::from_json(json, "fuzz");
    const std::vector<TokenId> ids = tokenizer.encode("Zwölf Boxkämpfer jagen 12345 <think>\xff 日本 😀\n");
    for (const TokenId id : ids) ASSERT_FALSE(tokenizer.token_bytes(id).empty());
    tokenizer.decode(tokenizer.encode_with_special("<think>a</think><｜end▁of▁sentence｜>"));
  };
  survive(good, kRounds, 1, read);
  const int accepted = survive(good.substr(0, vocabulary), kRounds, 2,
                               [&](const std::string& begin) { read(begin + good.substr(vocabulary)); });
  EXPECT_GT(accepted, kRounds / 50);
}

// What is accepted comes back the same from its own text.
TEST(Fuzz, Json) {
  const std::string good =
      R"({"a": [1, -2.5e-7, true, null, "\ud83d\ude00 \u00e9\n"], "b": {"c": {}, "d": [[]]}, "e": 123456789012345678901234567890})";
  for (const bool strict : {false, true}) {
    const int accepted = survive(good, 20 * kRounds, strict ? 3 : 4, [&](const std::string& text) {
      const Json value = strict ? Json::parse_strict(text) : Json::parse(text);
      const std::string dump = value.dump();
      ASSERT_EQ(Json::parse(dump).dump(), dump) << text;
    });
    EXPECT_GT(accepted, kRounds);
  }
}

}  // namespace
}  // namespace hadal::text
