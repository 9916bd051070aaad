#include "grammar/grammar.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "grammar/automaton.h"
#include "grammar/schema.h"
#include "grammar/test_support.h"

namespace hadal::grammar {
namespace {

TEST(Vocabulary, NeedsEveryByte) {
  std::vector<std::string> bytes = small_vocabulary_bytes();
  bytes[kFirstByte + '{'] = "";
  expect_error(ErrorKind::unsupported, "none for byte 0x7b", [&] {
    Vocabulary(bytes, {kEosToken, kDsmlToken, kEndThinkingToken});
  });
}

TEST(Vocabulary, SafeTextIsWholeCharactersWithoutEscapes) {
  const auto vocabulary = small_vocabulary();
  for (std::size_t t = 0; t < vocabulary->size(); ++t) {
    const auto token = static_cast<std::int32_t>(t);
    const std::string& text = vocabulary->bytes(token);
    const auto in = [&](Text kind, std::uint32_t most) { return vocabulary->safe(kind, most)[t / 64] >> (t % 64) & 1; };
    // By an independent reading: the JSON parser's.
    const auto parsed = text.empty() || text::valid_utf8_prefix(text) != text.size()
                            ? std::nullopt
                            : text::Json::try_parse('"' + text + '"');
    EXPECT_EQ(in(Text::json, 32), parsed && *parsed->as_string() == text) << text;
    if (text == "中") {
      EXPECT_FALSE(in(Text::json, 0));
      EXPECT_TRUE(in(Text::json, 1));
    }
    if (text == "name") {
      EXPECT_FALSE(in(Text::raw, 3));
      EXPECT_TRUE(in(Text::raw, 4));
    }
  }
}

TEST(Grammars, JsonObject) {
  Grammars grammars(small_vocabulary());
  const auto constraint = grammars.json_object();
  EXPECT_TRUE(takes(*constraint, R"({"a": [1, {"b": null}], "c": "x"})"));
  for (const char* bad : {"[]", "1", "\"a\"", "{", "", " {}", "{}\n"}) EXPECT_FALSE(takes(*constraint, bad)) << bad;
}

TEST(Grammars, CloneLeavesTheOriginalAlone) {
  Grammars grammars(small_vocabulary());
  const auto state = grammars.json_object()->clone();
  ASSERT_TRUE(state->accept(kFirstByte + '{'));
  const auto before = allowed_tokens(*state);
  const auto copy = state->clone();
  for (const char c : std::string("\"a\":1")) ASSERT_TRUE(copy->accept(kFirstByte + c));
  EXPECT_EQ(allowed_tokens(*state), before);
  EXPECT_NE(allowed_tokens(*copy), before);
}

TEST(Grammars, RefusedTokensChangeNothing) {
  Grammars grammars(small_vocabulary());
  const auto state = grammars.json_object()->clone();
  for (const char c : std::string("{\"ab\":1,\"a")) ASSERT_TRUE(state->accept(kFirstByte + c));
  const auto& all = small_vocabulary_bytes();
  const auto token = [&](const char* text) {
    return static_cast<std::int32_t>(std::find(all.begin() + kFirstByte, all.end(), text) - all.begin());
  };
  EXPECT_FALSE(state->accept(kEosToken));
  EXPECT_FALSE(state->accept(kDsmlToken));
  EXPECT_FALSE(state->accept(kUnusedToken));
  EXPECT_FALSE(state->accept(-1));
  EXPECT_FALSE(state->accept(1 << 30));
  EXPECT_FALSE(state->accept(token("\":\"\",\"")));  // two names in one token
  ASSERT_TRUE(state->accept(kFirstByte + 'b'));
  EXPECT_FALSE(state->accept(token("\":")));  // "ab" again
  ASSERT_TRUE(state->accept(kFirstByte + 'c'));
  EXPECT_TRUE(state->accept(token("\":")));
}

TEST(Grammars, ReasoningComesFirst) {
  Grammars grammars(small_vocabulary());
  const auto constraint = grammars.after_reasoning(grammars.json_schema_text(R"({"const": 1})"));
  const auto state = constraint->clone();
  expect_consistent(*state);
  for (const char c : std::string("so {\"\n\xff"))
    ASSERT_TRUE(state->accept(kFirstByte + static_cast<unsigned char>(c)));
  EXPECT_FALSE(state->accept(kEosToken));
  EXPECT_FALSE(state->accept(kDsmlToken));
  EXPECT_FALSE(state->accept(kUnusedToken));
  const auto copy = state->clone();
  ASSERT_TRUE(state->accept(kEndThinkingToken));
  EXPECT_EQ(allowed_tokens(*state), std::vector<std::int32_t>{kFirstByte + '1'});
  EXPECT_GT(allowed_tokens(*copy).size(), 300u);  // still inside
  EXPECT_FALSE(state->accept(kEndThinkingToken));
  const auto later = state->clone();
  ASSERT_TRUE(later->accept(kFirstByte + '1'));
  EXPECT_EQ(allowed_tokens(*later), std::vector<std::int32_t>{kEosToken});
  EXPECT_TRUE(takes(*constraint, {kEndThinkingToken, kFirstByte + '1'}));
}

// The embedded model's tokenizer: texts as it cuts them are taken, and every mask is kept.
TEST(Grammars, WorkWithARealTokenizer) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(HADAL_TINY_TOKENIZER);
  const std::int32_t eos = tokenizer.control("<｜end▁of▁sentence｜>");
  Grammars grammars(Vocabulary::of(tokenizer, eos));
  const auto constraint = grammars.after_reasoning(grammars.json_schema_text(R"({"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "parts": {"type": "array", "items": {"enum": ["day", "night"]}}}, "required": ["city"]})"));
  const std::string answer =
      "{\"city\": \"São \\\"Paulo\\\" 中文 😀\", \"days\": 120, \"parts\": [\n    \"day\",\n    \"night\"\n  ]}";
  std::vector<std::int32_t> tokens = tokenizer.encode("Let me think. {\"city\"");
  tokens.push_back(tokenizer.control("</think>"));
  for (const std::int32_t token : tokenizer.encode(answer)) tokens.push_back(token);
  tokens.push_back(eos);
  const auto state = constraint->clone();
  std::vector<std::uint64_t> mask((tokenizer.vocab_size() + 63) / 64);
  for (const std::int32_t token : tokens) {
    state->allowed(mask);
    ASSERT_TRUE(mask[static_cast<std::size_t>(token) / 64] >> (token % 64) & 1) << tokenizer.token_bytes(token);
    for (std::int32_t t = 0; t < static_cast<std::int32_t>(tokenizer.vocab_size()); t += 7)
      ASSERT_EQ(state->clone()->accept(t), (mask[static_cast<std::size_t>(t) / 64] >> (t % 64) & 1) != 0)
          << tokenizer.token_bytes(t);
    ASSERT_TRUE(state->accept(token)) << tokenizer.token_bytes(token);
  }
}

// More names than an automaton holds: states move on to a fresh one, and nothing is forgotten on the way.
TEST(Grammars, FullAutomataAreReplaced) {
  Grammars grammars(small_vocabulary());
  const auto state = grammars.json_object()->clone();
  const auto other = state->clone();  // stays behind in the first automaton
  Random random(3);
  ASSERT_TRUE(state->accept(kFirstByte + '{'));
  const auto write = [&](Constraint& c, const std::string& text) {
    return std::all_of(text.begin(), text.end(),
                       [&](char byte) { return c.accept(kFirstByte + static_cast<unsigned char>(byte)); });
  };
  for (int i = 0; i < 3000; ++i)
    ASSERT_TRUE(write(*state, fmt::format("\"n{}\":{{\"a\":[", i) + std::to_string(i) + "]},"));
  for (int i = 0; i < 3000; i += 100) EXPECT_FALSE(write(*state->clone(), fmt::format("\"n{}\":", i))) << i;
  EXPECT_TRUE(write(*state, "\"n3000\":1}"));
  EXPECT_TRUE(state->accept(kEosToken));
  EXPECT_TRUE(takes(*other, R"({"n1": 1})"));
}

TEST(Grammars, ThreadsShareAGrammar) {
  Grammars grammars(small_vocabulary());
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      Random random(i);
      for (int k = 0; k < 10; ++k) {
        const auto constraint = grammars.json_schema_text(
            R"({"properties": {"a": {"type": "array", "items": {}}, "b": {"type": "string", "maxLength": 9}}})");
        const std::string text = text_of(random_walk(random, *constraint, 40, false));
        good += text::Json::try_parse(text).has_value();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 40);
}

}  // namespace
}  // namespace hadal::grammar
