#include "text/detokenizer.h"

#include "text/stop_matcher.h"
#include "text/test_support.h"

namespace hadal::text {
namespace {

std::string joined(const std::vector<TokenPiece>& pieces) {
  std::string text;
  for (const TokenPiece& piece : pieces) text += piece.text;
  return text;
}

std::vector<TokenId> byte_ids(std::string_view bytes) {
  static const auto by_byte = [] {
    std::vector<TokenId> ids(256, -1);
    const Tokenizer& t = small_tokenizer();
    for (TokenId id = 0; id < static_cast<TokenId>(t.vocab_size()); ++id)
      if (t.token_bytes(id).size() == 1) ids[static_cast<unsigned char>(t.token_bytes(id)[0])] = id;
    return ids;
  }();
  std::vector<TokenId> ids;
  for (const char c : bytes) ids.push_back(by_byte[static_cast<unsigned char>(c)]);
  return ids;
}

// Rows 82 and 74 of the field reports: characters made of several tokens become U+FFFD or vanish when tokens are
// decoded one by one; a stream must give the text of the whole.
TEST(Detokenizer, StreamEqualsWhole) {
  property("any ids", [] {
    const Tokenizer& t = small_tokenizer();
    const auto ids =
        *rc::gen::container<std::vector<TokenId>>(rc::gen::inRange(TokenId{0}, static_cast<TokenId>(t.vocab_size())));
    Detokenizer detokenizer(t);
    std::vector<TokenPiece> pieces;
    for (const TokenId id : ids) detokenizer.push(id, pieces);
    detokenizer.finish(pieces);
    RC_ASSERT(joined(pieces) == t.decode(ids));
    for (const TokenPiece& piece : pieces) RC_ASSERT(valid_utf8_prefix(piece.text) == piece.text.size());
  });
  property("any bytes, one token each", [] {
    const std::string bytes = *any_bytes();
    const auto ids = byte_ids(bytes);
    Detokenizer detokenizer(small_tokenizer());
    std::vector<TokenPiece> pieces;
    for (const TokenId id : ids) detokenizer.push(id, pieces);
    detokenizer.finish(pieces);
    std::string repaired;
    append_replacing_invalid(bytes, repaired);
    RC_ASSERT(joined(pieces) == repaired);
  });
}

TEST(Detokenizer, WaitsForACharacterButNotForAnInvalidByte) {
  const auto push_all = [](std::string_view bytes) {
    Detokenizer detokenizer(small_tokenizer());
    std::vector<TokenPiece> pieces;
    for (const TokenId id : byte_ids(bytes)) detokenizer.push(id, pieces);
    return joined(pieces);
  };
  EXPECT_EQ(push_all("\xF0\x9F\x98"), "");
  EXPECT_EQ(push_all("\xF0\x9F\x98\x80"), "😀");
  EXPECT_EQ(push_all("\xFF"), "\uFFFD");
  EXPECT_EQ(push_all("\xF0\x9F\x98x"), "\uFFFDx");
  EXPECT_EQ(push_all("\xE4\xF0\x9F\x98\x80"), "\uFFFD😀");
  EXPECT_EQ(push_all("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate is three errors, as in Python
  EXPECT_EQ(push_all("\xF4\x90"), "\uFFFD\uFFFD");
}

TEST(Detokenizer, ControlTokensAreKnownByIdentity) {
  const Tokenizer& t = small_tokenizer();
  Detokenizer detokenizer(t);
  std::vector<TokenPiece> pieces;
  for (const TokenId id : t.encode("</think>")) detokenizer.push(id, pieces);
  for (const TokenPiece& piece : pieces) EXPECT_FALSE(piece.control);
  pieces.clear();
  detokenizer.push(byte_ids("\xE4")[0], pieces);
  detokenizer.push(t.control("</think>"), pieces);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].text, "\uFFFD");
  EXPECT_EQ(pieces[1].text, "</think>");
  EXPECT_TRUE(pieces[1].control);
}

// The earliest end of any stop string, and of those the longest; found by looking at the whole text.
std::string plain_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    if (longest) return text.substr(0, end - longest);
  }
  return text;
}

// Row 78: part of a stop string was already sent when the rest came.
TEST(StopMatcher, NeverShowsPartOfAStopString) {
  property("any split gives the text before the first stop string", [] {
    const auto letters = rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab\n")));
    const std::string text = *letters;
    auto stops = *rc::gen::container<std::vector<std::string>>(letters);
    std::erase(stops, "");
    StopMatcher matcher(stops);
    std::string shown;
    for (std::size_t i = 0; i < text.size();) {
      const auto n = *rc::gen::inRange<std::size_t>(1, 5);
      shown += matcher.push(std::string_view(text).substr(i, n));
      i += n;
      RC_ASSERT(plain_stop(text, stops).starts_with(shown));
    }
    shown += matcher.finish();
    RC_ASSERT(shown == plain_stop(text, stops));
  });
}

TEST(StopMatcher, HoldsOnlyWhatCouldBecomeAStop) {
  StopMatcher matcher({"STOP", ""});
  EXPECT_EQ(matcher.push("abcST"), "abc");
  EXPECT_EQ(matcher.push("A"), "STA");
  EXPECT_EQ(matcher.push("SSTOPmore"), "S");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "STOP");
  EXPECT_EQ(matcher.push("x"), "");
  EXPECT_EQ(matcher.finish(), "");
  StopMatcher keep({"\n"}, true);
  EXPECT_EQ(keep.push("a\nb"), "a\n");
}

}  // namespace
}  // namespace hadal::text
