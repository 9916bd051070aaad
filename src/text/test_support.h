// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/test_support.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace hadal::text {

inline std::string testdata(const std::string& name) { return std::string(HADAL_TEXT_TESTDATA "/") + name; }

inline const Tokenizer& small_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(testdata("tokenizer.json"));
  return tokenizer;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<Json> read_json_lines(const std::string& name) {
  std::ifstream file(testdata(name));
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  EXPECT_FALSE(rows.empty()) << name;
  return rows;
}

inline std::string string_at(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value && value->as_string() ? *value->as_string() : std::string();
}

// Valid UTF-8 with a taste for what breaks tokenizers: blanks, digits, punctuation, several scripts, emoji.
inline rc::Gen<std::string> any_text() {
  const auto words = rc::gen::elementOf(std::vector<std::string>{
      " ",        "  ",     "\n",      "\r\n",     "\t",         "a",        "the",  "Hello",   ".append", "123",
      "4567",     "\u0663", "中文",    "。",       "、",         "カ",       "é",    "e\u0301", "Привет",  "😀",
      "👩\u200d💻", "\u200d", "\u3000",  "\u0085",   "'",          "\"",       "{}",   "<",       ">",       "</",
      "\u00a0",   "｜",     "<think>", "</think>", "<｜User｜>", "｜DSML｜", "\x01", "\x7f"});
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(words), [](const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += part;
    return text;
  });
}

inline rc::Gen<std::string> any_bytes() {
  return rc::gen::container<std::string>(
      rc::gen::map(rc::gen::inRange(0, 256), [](int b) { return static_cast<char>(b); }));
}

// Checks a property with random values; the failure message holds the counterexample.
template <typename Function>
void property(const std::string& what, Function&& function) {
  EXPECT_TRUE(rc::check(what, std::forward<Function>(function)));
}

}  // namespace hadal::text
