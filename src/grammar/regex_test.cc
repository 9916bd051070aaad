#include "grammar/regex.h"

#include <regex>

#include "grammar/test_support.h"

namespace hadal::grammar {
namespace {

std::shared_ptr<const Constraint> pattern(const std::string& text) {
  static Grammars grammars(small_vocabulary());
  return grammars.json_schema(text::Json(text::Json::Object{{"type", "string"}, {"pattern", text}}));
}

bool matches(const Constraint& constraint, std::string_view text) { return takes(constraint, text::Json(text).dump()); }

std::string random_pattern(Random& random, int depth) {
  const std::vector<std::string> atoms = {"a",    "b",    "1",   "\"",  "\\\\", "\\n",      "c",        ".",
                                          "[ab]", "[^a]", "\\d", "\\w", "\\s",  "[a-c\\d]", "[^\\w\"]", "\\D"};
  std::string out;
  for (int i = 0; i < 1 + below(random, 3); ++i) {
    std::string item = depth > 0 && chance(random, 0.4)
                           ? fmt::format("({}{})", chance(random, 0.5) ? "" : "?:", random_pattern(random, depth - 1))
                           : pick(random, atoms);
    item +=
        pick(random, std::vector<std::string>{"", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}", "+?", "*?"});
    out += item;
  }
  if (chance(random, 0.25)) out += fmt::format("|{}", random_pattern(random, depth - 1));
  return out;
}

// std::regex works on bytes, so the strings are ASCII; characters beyond are in the test below.
TEST(Regex, AgreesWithStdRegex) {
  Random random(7);
  int matched = 0, all = 0, refused = 0;
  for (int round = 0; round < 250; ++round) {
    const std::string text = random_pattern(random, 2);
    const std::regex expected(text);
    const bool whole = chance(random, 0.6);
    std::shared_ptr<const Constraint> constraint;
    try {
      constraint = pattern(whole ? fmt::format("^({})$", text) : text);
    } catch (const Error& error) {
      ASSERT_NE(std::string_view(error.what()).find("too ambiguous"), std::string_view::npos) << error.what();
      ++refused;
      continue;
    }
    for (int i = 0; i < 40; ++i) {
      std::string subject;
      for (int k = below(random, 6); k > 0; --k)
        subject += pick(random, std::vector<std::string>{"a", "b", "c", "1", "\"", "\\", "\n", " "});
      const bool match = whole ? std::regex_match(subject, expected) : std::regex_search(subject, expected);
      matched += match;
      ++all;
      ASSERT_EQ(matches(*constraint, subject), match) << text << " on " << text::Json(subject).dump();
    }
  }
  EXPECT_LE(refused, 10);  // of 250
  EXPECT_GT(matched, all / 10);
  EXPECT_LT(matched, all * 9 / 10);
}

TEST(Regex, Examples) {
  struct Case {
    const char* pattern;
    std::vector<const char*> good, bad;
  };
  const std::vector<Case> cases = {
      {"^a$|^b", {"a", "b", "bx"}, {"ab", "xb", "ax"}},
      {"b", {"b", "abc", "\nb\n"}, {"", "a"}},
      {"^.$", {"a", "é", "中", "😀", "\""}, {"", "ab", "\n", "\xE2\x80\xA8"}},
      {"^[é-中]+$", {"é", "中", "Ā中"}, {"a", "文😀", ""}},
      {"^[^a]$", {"b", "😀", "\n"}, {"a", ""}},
      {"^\\u{1F600}\\ud83d\\ude00\\u00e9\\xe9$", {"😀😀éé"}, {"😀😀é"}},
      {"^\\s\\S$", {" a", "\xC2\xA0x", "\xE3\x80\x80x"}, {"a ", "  "}},
      {"^(?<year>[0-9]{4})-\\d\\d$", {"2024-01"}, {"2024-1", "202-01"}},
      {"^[\\]\\-^a-]$", {"]", "-", "^", "a"}, {"b", "\\"}},
      {"^\\/\\.\\*\\{$", {"/.*{"}, {"/a*{"}},
      {"^$", {""}, {"a"}},
      {"", {"", "a"}, {}},
      {"^\\t\\cA\\0[\\b]$", {}, {"x"}},
      {"^a{0}$", {""}, {"a"}},
      {"^(a*)*$", {"", "aaa"}, {"b"}},
      {"^(|a)+$", {"", "aa"}, {"b"}},
      {"^x{3,}$", {"xxx", "xxxxxx"}, {"xx"}},
      {"^((.?){30}){30}$", {"", "aé中😀"}, {"\n"}},
      {"^(.?){300}$", {"", "aé中😀", "a\"b"}, {"\n"}},
      {"^(a|b)*a(a|b){5}$", {"abbbbb", "babababab"}, {"bbbbbb", "aaa"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.pattern);
    const auto constraint = pattern(c.pattern);
    for (const char* text : c.good) EXPECT_TRUE(matches(*constraint, text)) << text;
    for (const char* text : c.bad) EXPECT_FALSE(matches(*constraint, text)) << text;
  }
  EXPECT_TRUE(matches(*pattern("^\\t\\cA\\0[\\b]$"), std::string("\t\x01\0\b", 4)));
  // One spelling of each character.
  EXPECT_FALSE(takes(*pattern("^a$"), "\"\\u0061\""));
  EXPECT_TRUE(takes(*pattern("^\\u001f$"), "\"\\u001f\""));
}

TEST(Regex, Refuses) {
  const std::vector<std::pair<const char*, const char*>> cases = {{"(?=a)", "look-around"},
                                                                  {"(?<!a)", "look-around"},
                                                                  {"(?i)a", "look-around or flags"},
                                                                  {"\\1", "back reference"},
                                                                  {"\\bword", "word boundary"},
                                                                  {"\\p{L}", "Unicode property"},
                                                                  {"a^b", "an anchor inside"},
                                                                  {"(a$)", "an anchor inside a group"},
                                                                  {"a$b", "an anchor inside"},
                                                                  {"*a", "a repetition of nothing"},
                                                                  {"a**", "a repetition of a repetition"},
                                                                  {"a{2,1}", "below its minimum"},
                                                                  {"a{x}", "write \\{"},
                                                                  {"{", "write \\{"},
                                                                  {"a{99999}", "more than 10000"},
                                                                  {"(a", "without its ')'"},
                                                                  {"a)", "a ')' without"},
                                                                  {"[a", "without its ']'"},
                                                                  {"[b-a]", "wrong order"},
                                                                  {"[\\d-z]", "a class"},
                                                                  {"\\", "a backslash at its end"},
                                                                  {"\\q", "an unknown escape"},
                                                                  {"\\x1", "too few"},
                                                                  {"\\ud800", "without its partner"},
                                                                  {"\\u{110000}", "beyond"},
                                                                  {"\\07", "octal"},
                                                                  {"(?:(?:", "without its ')'"},
                                                                  // 2^20 states, if they were made deterministic
                                                                  {"^.*[a-m].{20}$", "too ambiguous"},
                                                                  {"[a-m].{20}[n-z]", "too ambiguous"},
                                                                  {"(a|b|.)*[a-m].{9}", "too ambiguous"}};
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    expect_error(ErrorKind::invalid_argument, message, [t = text] { pattern(t); });
  }
}

TEST(Regex, RandomBytesNeverCrash) {
  Random random(11);
  constexpr std::string_view kBytes = "ab()[]{}*+?|^$\\.-,:<=!1uxd\xC3\xA9";
  int accepted = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (int k = below(random, 12); k > 0; --k)
      text += kBytes[static_cast<std::size_t>(below(random, static_cast<int>(kBytes.size())))];
    try {
      pattern(text);
      ++accepted;
    } catch (const Error& error) { EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what(); }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace hadal::grammar
