// Random damage to files, for tests of their readers: each attempt must parse or throw hadal::Error, nothing else.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace hadal {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string operator()(std::string text) {
    for (int i = 1 + int(pick(4)); i > 0; --i) step(text);
    return text;
  }

 private:
  size_t pick(size_t count) { return size_t(random_() % count); }

  void step(std::string& text) {
    static const std::vector<std::string> tokens = {"0",
                                                    "-1",
                                                    "1e999",
                                                    "1.5",
                                                    "9223372036854775807",
                                                    "9223372036854775808",
                                                    "18446744073709551615",
                                                    "18446744073709551616",
                                                    "4294967296",
                                                    "null",
                                                    "true",
                                                    "\"\"",
                                                    "[]",
                                                    "{}",
                                                    "[[[[[[[[",
                                                    "{\"a\":",
                                                    "\"\\ud800\"",
                                                    "\xff",
                                                    std::string(1, '\0'),
                                                    "\"F8_E8M0\"",
                                                    "\"data_offsets\"",
                                                    "\"__metadata__\"",
                                                    ",",
                                                    ":",
                                                    "}",
                                                    "]",
                                                    "\\u0000",
                                                    "e",
                                                    "99999999999999999999999999"};
    if (text.empty()) {
      text.assign(1, 'x');
      return;
    }
    const size_t at = pick(text.size());
    switch (pick(7)) {
      case 0: text[at] = char(text[at] ^ (1 << pick(8))); break;
      case 1: text[at] = char(pick(256)); break;
      case 2: text.erase(at, 1 + pick(std::min<size_t>(16, text.size() - at))); break;
      case 3: text.insert(at, tokens[pick(tokens.size())]); break;
      case 4: text.insert(at, text.substr(pick(text.size()), pick(40))); break;
      case 5: text.resize(at); break;
      default: replace_number(text, at, tokens); break;
    }
  }

  // Numbers carry most of the meaning: replaces the next one.
  void replace_number(std::string& text, size_t at, const std::vector<std::string>& tokens) {
    const size_t begin = text.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = text.find_first_not_of("0123456789", begin);
    text.replace(begin, (end == std::string::npos ? text.size() : end) - begin, tokens[pick(tokens.size())]);
  }

  std::mt19937_64 random_;
};

// Counts how many of `rounds` mutations of `seed` are accepted by `read`. With --gtest_shuffle --gtest_repeat=N every
// repetition damages in other ways.
template <typename Read>
int survive(const std::string& seed, int rounds, uint64_t random_seed, Read read) {
  Mutator mutate(random_seed + 1000 * static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  int accepted = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = mutate(seed);
    try {
      read(text);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
      EXPECT_GT(std::string(error.what()).size(), 10u);
    }
  }
  return accepted;
}

}  // namespace hadal
