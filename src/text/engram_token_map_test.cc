#include "text/engram_token_map.h"

#include <algorithm>

#include "base/npy.h"
#include "text/test_support.h"

namespace hadal::text {
namespace {

// A tokenizer.json whose first tokens are `words` in the byte alphabet. The bytes that are not among them follow, as every
// vocabulary has all, then an added token.
Tokenizer tokenizer_of(std::vector<std::string> words) {
  char32_t extra = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const char32_t letter = printable ? b : extra++;
    const std::string spelt =
        letter < 0x80 ? std::string(1, static_cast<char>(letter))
                      : std::string{static_cast<char>(0xC0 | (letter >> 6)), static_cast<char>(0x80 | (letter & 63))};
    if (std::find(words.begin(), words.end(), spelt) == words.end()) words.push_back(spelt);
  }
  Json::Object vocab;
  for (std::size_t i = 0; i < words.size(); ++i) vocab.emplace_back(words[i], static_cast<int>(i));
  const Json root = Json::parse(read_text(testdata("tokenizer.json")));
  const Json model = Json::Object{{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", Json::Array{}}};
  const Json added = Json::Object{{"id", static_cast<int>(words.size())}, {"content", "<É>"}, {"special", true}};
  const Json file = Json::Object{{"pre_tokenizer", *root.find("pre_tokenizer")},
                                 {"decoder", Json::Object{{"type", "ByteLevel"}}},
                                 {"model", model},
                                 {"added_tokens", Json::Array{added}}};
  return Tokenizer::from_json(file.dump(), "test");
}

TEST(EngramTokenMap, TokensThatReadAlikeShareAnId) {
  // Ġ stands for a blank, Ċ for a line feed, Ã© for é (two bytes), Ã alone for half of it.
  const Tokenizer tokenizer =
      tokenizer_of({"The", "Ġthe", "the", "Ã©", "e", "Ã", "Ġ", "ĠĠ", "Ċ", "Ãī", "ï¼¥", "Ìģ", "ĠÌģ", "ÂŃ", "Â½", "<e>"});
  const auto size = static_cast<int>(tokenizer.vocab_size());
  std::vector<int32_t> map = derive_engram_token_map(tokenizer, size + 2);
  EXPECT_EQ(map[static_cast<std::size_t>(size) - 1], 7) << "the added token, in lower case and without its accent";
  EXPECT_EQ(map[static_cast<std::size_t>(size)], map[static_cast<std::size_t>(size) + 1]) << "no tokens";
  EXPECT_EQ(engram_token_map_size(map), map.back() + 1);
  map.resize(16);
  EXPECT_EQ(map, (std::vector<int32_t>{0, 0, 0,  // case and blanks
                                       1, 1,     // accent
                                       2,        // not a character: the spelling itself, which no text equals
                                       3, 3, 3,  // nothing but blanks: one blank
                                       1, 1,     // capital with accent, full-width capital
                                       4,        // a lone accent: nothing would be left
                                       3,        // after the accent a blank is left
                                       5, 6,     // soft hyphen, one half
                                       7}));
}

TEST(EngramTokenMap, EqualsTheOneMadeInPython) {
  const std::string folder = HADAL_TEXT_TESTDATA "/../../../models/hadal-tiny";
  const NpyArray<int32_t> want = read_npy_i32(folder + "/engram_token_map.npy");
  const std::vector<int32_t> map = derive_engram_token_map(Tokenizer::load(folder), static_cast<int>(want.data.size()));
  EXPECT_EQ(map, want.data);
  EXPECT_EQ(engram_token_map_size(map), 6406);
}

}  // namespace
}  // namespace hadal::text
