// Time of Constraint::allowed over a vocabulary of a model's size. Not part of the product.
//
// usage: hadal_grammar_bench [tokenizer.json]
//
// Without a file the vocabulary has 129,280 tokens made like those of a byte-level BPE: all bytes, 3% pieces of JSON and source code
// with quotes, brackets, blanks and escapes, 2% parts of UTF-8 characters, the rest words and numbers with and without a leading blank.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "grammar/grammar.h"
#include "text/tokenizer.h"

namespace {

using namespace hadal;
using Clock = std::chrono::steady_clock;
using Random = std::mt19937;

template <typename T>
const T& pick(Random& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

std::vector<std::string> synthetic_vocabulary(std::size_t size) {
  Random random(1);
  std::vector<std::string> tokens(3);  // control tokens
  std::set<std::string> seen;
  const auto add = [&](const std::string& token) {
    if (tokens.size() < size && seen.insert(token).second) tokens.push_back(token);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  const std::vector<std::string> syllables = {"a",   "e",   "in",  "th",  "er",   "on", "re",  "st", "com",
                                              "pro", "ing", "ed",  "ly",  "tion", "ab", "le",  "un", "qu",
                                              "sch", "ver", "gen", "der", "é",    "ü",  "при", "ов", "中",
                                              "国",  "人",  "の",  "カ",  "한",   "א",  "0",   "1",  "2024"};
  const std::vector<std::string> marks = {"\"", "\"", "\"", ":", ",", "{", "}", "[", "]", " ",  "\n",   "\\", "/",
                                          "<",  ">",  "(",  ")", "=", ";", ".", "'", "n", "id", "name", "  "};
  while (tokens.size() < 256 + size * 3 / 100) {
    std::string token;
    for (auto n = 2 + random() % 3; n > 0; --n) token += pick(random, marks);
    add(token);
  }
  while (tokens.size() < 256 + size * 5 / 100) {
    const std::string character = pick(random, std::vector<std::string>{"中", "😀", "한", "פ"});
    add(pick(random, syllables) + character.substr(0, 1 + random() % (character.size() - 1)) +
        (random() % 2 ? "" : std::string(1, static_cast<char>(0x80 + random() % 64))));
  }
  while (tokens.size() < size) {
    std::string token = random() % 2 ? " " : "";
    for (auto n = 1 + random() % 4; n > 0; --n) token += pick(random, syllables);
    add(token);
  }
  return tokens;
}

struct Times {
  std::vector<double> us;
  void print(const char* name) {
    std::sort(us.begin(), us.end());
    double sum = 0;
    for (const double t : us) sum += t;
    std::printf("  %-34s %6zu calls  mean %8.1f us  median %8.1f us  p99 %8.1f us  worst %8.1f us\n", name, us.size(),
                sum / static_cast<double>(us.size()), us[us.size() / 2], us[us.size() * 99 / 100], us.back());
  }
};

double timed(const Constraint& constraint, std::vector<std::uint64_t>& mask) {
  const auto start = Clock::now();
  constraint.allowed(mask);
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Every position of `text`, byte by byte: on a fresh grammar each (nothing cached), and on one that all positions share.
void measure(const char* name, const std::shared_ptr<const grammar::Vocabulary>& vocabulary,
             const std::map<std::string, std::int32_t>& ids,
             const std::function<std::shared_ptr<const Constraint>(grammar::Grammars&)>& make,
             const std::string& text) {
  std::vector<std::uint64_t> mask(vocabulary->words());
  Times cold, first, again, compile, accept;
  for (std::size_t end = 0; end <= text.size(); end += std::max<std::size_t>(1, text.size() / 60)) {
    grammar::Grammars grammars(vocabulary);
    const auto start = Clock::now();
    const auto state = make(grammars)->clone();
    compile.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    for (std::size_t i = 0; i < end; ++i)
      if (!state->accept(ids.at(text.substr(i, 1)))) std::printf("refused at byte %zu of %s\n", i, text.c_str());
    cold.us.push_back(timed(*state, mask));
  }
  grammar::Grammars grammars(vocabulary);
  for (int round = 0; round < 2; ++round) {
    const auto state = make(grammars)->clone();
    for (std::size_t i = 0; i <= text.size(); ++i) {
      (round == 0 ? first : again).us.push_back(timed(*state, mask));
      if (i == text.size()) break;
      const auto start = Clock::now();
      state->accept(ids.at(text.substr(i, 1)));
      if (round == 1) accept.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
  }
  std::printf("%s\n", name);
  compile.print("compile");
  cold.print("allowed, nothing cached");
  first.print("allowed, along a text, first time");
  again.print("allowed, along a text, again");
  accept.print("accept");
}

}  // namespace

int main(int argc, char** argv) {
  std::shared_ptr<const grammar::Vocabulary> vocabulary;
  const auto start = Clock::now();
  if (argc > 1) {
    const text::Tokenizer tokenizer = text::Tokenizer::load(argv[1]);
    vocabulary = grammar::Vocabulary::of(tokenizer, tokenizer.control("<｜end▁of▁sentence｜>"));
  } else {
    vocabulary = std::make_shared<const grammar::Vocabulary>(synthetic_vocabulary(129'280),
                                                             grammar::Vocabulary::Controls{0, 1, 2});
  }
  std::printf(
      "vocabulary: %zu tokens, trie %zu nodes (beside safe JSON text %zu, beside safe raw text %zu), made in %.0f ms\n",
      vocabulary->size(), vocabulary->all().nodes.size(), vocabulary->others(grammar::Text::json).nodes.size(),
      vocabulary->others(grammar::Text::raw).nodes.size(),
      std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  std::map<std::string, std::int32_t> ids;
  for (std::size_t t = 0; t < vocabulary->size(); ++t)
    if (vocabulary->bytes(static_cast<std::int32_t>(t)).size() == 1)
      ids[vocabulary->bytes(static_cast<std::int32_t>(t))] = static_cast<std::int32_t>(t);

  const auto schema = [](const char* text) {
    return [text](grammar::Grammars& g) { return g.json_schema_text(text); };
  };
  const std::string words = "a fairly long text of some words, as answers have them";
  measure("string, no limits (in the string)", vocabulary, ids, schema(R"({"type": "string"})"), "\"" + words);
  measure("string, maxLength 2000 (in the string)", vocabulary, ids, schema(R"({"type": "string", "maxLength": 2000})"),
          "\"" + words);
  measure("string, pattern ^[a-z ,]+$", vocabulary, ids, schema(R"({"type": "string", "pattern": "^[a-z ,]+$"})"),
          "\"" + words);
  measure("string, pattern ^.*$ (no shortcut)", vocabulary, ids, schema(R"({"type": "string", "pattern": "^.*$"})"),
          "\"" + words);
  // What somebody may send who means no good.
  measure("string, pattern ^(.?){1500}$", vocabulary, ids, schema(R"({"type": "string", "pattern": "^(.?){1500}$"})"),
          "\"" + words);
  measure("string, pattern ^.*[a-m].{5}$", vocabulary, ids, schema(R"({"type": "string", "pattern": "^.*[a-m].{5}$"})"),
          "\"" + words);
  text::Json::Array names;
  for (int i = 0; i < 10'000; ++i) names.emplace_back("name " + std::to_string(i * 7919));
  measure(
      "enum of 10,000 names", vocabulary, ids,
      [&](grammar::Grammars& g) {
        return g.json_schema(text::Json::Object{{"enum", text::Json(names)}});
      },
      "\"name 7919");
  measure(
      "object with five members", vocabulary, ids,
      schema(
          R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "tags": {"type": "array", "items": {"type": "string"}}, "kind": {"enum": ["person", "place", "thing"]}, "score": {"type": ["number", "null"]}},
      "required": ["name", "age", "tags", "kind", "score"], "additionalProperties": false})"),
      R"({"name": "Ada Lovelace", "age": 36, "tags": ["mathematics", "first programmer"], "kind": "person", "score": 9.5})");
  measure(
      "any JSON object", vocabulary, ids, [](grammar::Grammars& g) { return g.json_object(); },
      R"({"name": "Ada Lovelace", "age": 36, "tags": ["mathematics", {"first": "programmer"}], "kind": null})");
  measure(
      "tool calls, automatic (in the answer)", vocabulary, ids,
      [](grammar::Grammars& g) {
        return g.tool_calls(
            {{"get_weather",
              text::Json::parse(R"({"properties": {"city": {"type": "string"}}, "required": ["city"]})")}},
            {});
      },
      words);
}
