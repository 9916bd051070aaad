#include "text/test_support.h"

#include <filesystem>
#include <map>
#include <thread>

namespace hadal::text {
namespace {

std::vector<TokenId> ids_at(const Json& row, const char* key) {
  std::vector<TokenId> ids;
  for (const Json& id : *row.find(key)->as_array()) ids.push_back(static_cast<TokenId>(*id.as_integer()));
  return ids;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Goldens made with the `tokenizers` library (tools/oracle-text/make_small.py).
TEST(Tokenizer, EqualsTheReferenceLibrary) {
  const Tokenizer& tokenizer = small_tokenizer();
  for (const Json& row : read_json_lines("encodings.jsonl")) {
    const bool text = row.find("text") != nullptr;
    const std::string input = text ? string_at(row, "text") : from_hex(string_at(row, "hex"));
    EXPECT_EQ(tokenizer.encode(input), ids_at(row, "plain")) << input;
    EXPECT_EQ(tokenizer.encode_with_special(input), ids_at(row, "special")) << input;
    EXPECT_EQ(tokenizer.decode(ids_at(row, "plain")), text ? input : string_at(row, "replaced"));
    EXPECT_EQ(tokenizer.decode(ids_at(row, "special")), text ? input : string_at(row, "replaced"));
  }
}

// Byte-pair encoding as it is defined: merge the pair of lowest rank, leftmost first, until none is left.
class PlainBpe {
 public:
  PlainBpe() {
    const Json root = Json::parse(read_text(testdata("tokenizer.json")));
    const Json* model = root.find("model");
    for (const auto& [token, id] : *model->find("vocab")->as_object())
      spelling_[static_cast<TokenId>(*id.as_integer())] = token;
    for (const auto& [id, token] : spelling_) id_[token] = id;
    int rank = 0;
    for (const Json& merge : *model->find("merges")->as_array()) {
      const std::string& pair = *merge.as_string();
      const std::size_t blank = pair.find(' ');
      rank_[{id_[pair.substr(0, blank)], id_[pair.substr(blank + 1)]}] = rank++;
    }
    for (const auto& [id, token] : spelling_) by_bytes_[small_tokenizer().token_bytes(id)] = id;
  }
  void encode(std::string_view word, std::vector<TokenId>& out) const {
    std::vector<TokenId> ids;
    for (const char c : word) ids.push_back(by_bytes_.at(std::string(1, c)));
    for (;;) {
      int best = -1;
      std::size_t at = 0;
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto it = rank_.find({ids[i], ids[i + 1]});
        if (it != rank_.end() && (best < 0 || it->second < best)) {
          best = it->second;
          at = i;
        }
      }
      if (best < 0) break;
      ids[at] = id_.at(spelling_.at(ids[at]) + spelling_.at(ids[at + 1]));
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    out.insert(out.end(), ids.begin(), ids.end());
  }

 private:
  std::map<TokenId, std::string> spelling_;
  std::map<std::string, TokenId> id_, by_bytes_;
  std::map<std::pair<TokenId, TokenId>, int> rank_;
};

TEST(Tokenizer, EqualsThePlainAlgorithm) {
  const PlainBpe plain;
  property("encode equals the definition", [&](int repeat) {
    std::string text = *any_text();
    // Repetition makes words that are long enough for the queue-based path.
    for (int i = 0; i < repeat % 5; ++i) text += text;
    std::vector<TokenId> expected;
    for_each_word_deepseek_v3(text, [&](std::string_view word) { plain.encode(word, expected); });
    RC_ASSERT(small_tokenizer().encode(text) == expected);
  });
  for (const std::string& unit :
       {std::string("ab"), std::string("="), std::string("中文"), std::string(" "), std::string("й")}) {
    std::string text;
    for (int i = 0; i < 700; ++i) text += unit;
    std::vector<TokenId> expected;
    for_each_word_deepseek_v3(text, [&](std::string_view word) { plain.encode(word, expected); });
    EXPECT_EQ(small_tokenizer().encode(text), expected);
  }
}

TEST(Tokenizer, RoundTrip) {
  property("decode(encode(text)) is the text", [] {
    const std::string text = *any_text();
    RC_ASSERT(small_tokenizer().decode(small_tokenizer().encode(text)) == text);
    RC_ASSERT(small_tokenizer().decode(small_tokenizer().encode_with_special(text)) == text);
  });
  property("of any bytes comes the text with U+FFFD for what is ill-formed", [] {
    const std::string bytes = *any_bytes();
    std::string repaired;
    append_replacing_invalid(bytes, repaired);
    RC_ASSERT(small_tokenizer().decode(small_tokenizer().encode(bytes)) == repaired);
  });
}

TEST(Tokenizer, TextNeverBecomesAControlToken) {
  const Tokenizer& tokenizer = small_tokenizer();
  property("plain encoding has no control ids", [&] {
    for (const TokenId id : tokenizer.encode(*any_text())) RC_ASSERT(!tokenizer.is_control(id));
  });
  Prompt prompt;
  prompt.add_control("<｜User｜>");
  prompt.add_text("<｜Assistant｜>");
  prompt.add_text("</think>");
  const auto ids = tokenizer.encode(prompt);
  EXPECT_EQ(ids[0], tokenizer.control("<｜User｜>"));
  for (std::size_t i = 1; i < ids.size(); ++i) EXPECT_FALSE(tokenizer.is_control(ids[i]));
  EXPECT_EQ(tokenizer.decode(ids), "<｜User｜><｜Assistant｜></think>");
}

// Joined text parts are tokenised as one, and the whole equals the string-level encoding of a prompt.
TEST(Tokenizer, PromptPartsEqualTheString) {
  property("parts and string agree when the text spells no control token", [] {
    const Tokenizer& tokenizer = small_tokenizer();
    Prompt prompt;
    const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(std::vector<std::string>{
        "a ", " b", "c", "\n", "\n\n", "中", "12", "34", "<", "｜", ">", "<｜User｜>", "｜DSML｜"}));
    for (const std::string& part : parts) {
      if (part == "<｜User｜>" || part == "｜DSML｜")
        prompt.add_control(part);
      else
        prompt.add_text(part);
    }
    std::size_t controls = 0;
    for (const auto& part : prompt.parts()) controls += part.control;
    const auto ids = tokenizer.encode_with_special(prompt.to_string());
    std::size_t spelled = 0;
    for (const TokenId id : ids) spelled += tokenizer.is_control(id);
    RC_PRE(spelled == controls);
    RC_ASSERT(tokenizer.encode(prompt) == ids);
  });
}

TEST(Tokenizer, SpecialIsAMarkOfTheFile) {
  const Tokenizer& tokenizer = small_tokenizer();
  const auto ids = tokenizer.encode_with_special("<｜begin▁of▁sentence｜>a<think>b</think>");
  EXPECT_EQ(tokenizer.decode(ids, true), "a<think>b</think>");
  EXPECT_TRUE(tokenizer.is_control(tokenizer.control("<think>")));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.control("<think>")));
  EXPECT_FALSE(tokenizer.find_control("<think"));
  expect_error(ErrorKind::unsupported, "<｜nothing｜>", [&] { tokenizer.control("<｜nothing｜>"); });
  expect_error(ErrorKind::invalid_argument, "outside the vocabulary", [&] { tokenizer.decode({1 << 20}); });
  expect_error(ErrorKind::invalid_argument, "outside the vocabulary", [&] { tokenizer.decode({-1}); });
}

TEST(Tokenizer, ManyThreads) {
  const Tokenizer tokenizer = Tokenizer::load(testdata("tokenizer.json"));  // fresh: its caches are empty
  const auto rows = read_json_lines("encodings.jsonl");
  std::vector<int> wrong(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int& count : wrong)
      threads.emplace_back([&] {
        for (const Json& row : rows)
          if (row.find("text")) count += tokenizer.encode(string_at(row, "text")) != ids_at(row, "plain");
      });
  }
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

TEST(TokenizerFile, RefusesWhatItCannotRead) {
  const std::string good = read_text(testdata("tokenizer.json"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string json = good;
    const std::size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    json.replace(at, from.size(), to);
    return [json] { Tokenizer::from_json(json, "file.json"); };
  };
  expect_error(ErrorKind::invalid_data, "file.json: not valid JSON", [&] { Tokenizer::from_json("{", "file.json"); });
  expect_error(ErrorKind::invalid_data, "\"model\" is missing", [&] { Tokenizer::from_json("{}", "file.json"); });
  expect_error(ErrorKind::invalid_data, "not UTF-8", [&] { Tokenizer::from_json("{\"\xff\": 1}", "file.json"); });
  expect_error(ErrorKind::unsupported, "model type is WordPiece", with(R"("type":"BPE")", R"("type":"WordPiece")"));
  expect_error(ErrorKind::unsupported, R"(\\p{N})", with(R"(\\p{N}{1,3})", R"(\\p{N})"));
  expect_error(ErrorKind::unsupported, "ignore_merges", with(R"("ignore_merges":false)", R"("ignore_merges":true)"));
  expect_error(ErrorKind::unsupported, "normalizer NFC",
               with(R"("normalizer":{"type":"Sequence","normalizers":[]})", R"("normalizer":{"type":"NFC"})"));
  expect_error(ErrorKind::unsupported, "lstrip", with(R"("lstrip":false)", R"("lstrip":true)"));
  expect_error(ErrorKind::invalid_data, "no token for byte 0x21", with(R"("!":3,)", ""));
  expect_error(ErrorKind::invalid_data, "merge 0 names a token", with(R"("merges":[)", R"("merges":["! !",)"));
  expect_error(ErrorKind::invalid_data, "expected two byte-level tokens", with(R"("merges":[)", R"("merges":["x",)"));
  expect_error(ErrorKind::invalid_data, "given to two tokens", with(R"("!":3,)", R"("!":4,)"));
  expect_error(ErrorKind::invalid_data, "has id 99999999", with(R"("!":3,)", R"("!":99999999,)"));
  expect_error(ErrorKind::io, "no such file", [] { Tokenizer::load("/nowhere/at/all"); });
  expect_error(ErrorKind::io, "has no tokenizer.json",
               [] { Tokenizer::load(std::filesystem::temp_directory_path() / "."); });
}

}  // namespace
}  // namespace hadal::text
