// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/test_support.h"
#include "grammar/grammar.h"

namespace hadal::grammar {

using Random = std::mt19937;
inline int below(Random& random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
inline bool chance(Random& random, double p) { return static_cast<double>(random()) < p * 4294967296.0; }
template <typename T>
const T& pick(Random& random, const std::vector<T>& from) {
  return from[static_cast<std::size_t>(below(random, static_cast<int>(from.size())))];
}

// Control tokens of the small vocabulary; then every byte, then what a vocabulary has of JSON, words and parts of characters.
inline constexpr std::int32_t kEosToken = 0, kDsmlToken = 1, kEndThinkingToken = 2, kUnusedToken = 3, kFirstByte = 4;
const std::vector<std::string>& small_vocabulary_bytes();
std::shared_ptr<const Vocabulary> small_vocabulary();

// `text` as tokens, cut at random, without tokens that hold two strings; \x01 stands for the DSML mark when `markup` is set.
std::vector<std::int32_t> cut_at_random(Random& random, std::string_view text, bool markup = false);
std::vector<std::int32_t> as_bytes(std::string_view text, bool markup = false);

// Whether the constraint takes the tokens and then the end.
bool takes(const Constraint& initial, const std::vector<std::int32_t>& tokens);
inline bool takes(const Constraint& initial, std::string_view text) { return takes(initial, as_bytes(text)); }
// Whether the tokens are a beginning of something.
bool begins(const Constraint& initial, const std::vector<std::int32_t>& tokens);
inline bool begins(const Constraint& initial, std::string_view text) { return begins(initial, as_bytes(text)); }

std::vector<std::int32_t> allowed_tokens(const Constraint& constraint);
// Expects allowed() and accept() to say the same of every token of the small vocabulary.
void expect_consistent(const Constraint& constraint);

// Follows the mask at random until the end of sequence, which is left out of the result. Towards the end it prefers tokens that close
// what is open. Adds a test failure when it does not end.
std::vector<std::int32_t> random_walk(Random& random, const Constraint& initial, int steps, bool check_consistency);
std::string text_of(const std::vector<std::int32_t>& tokens);  // the DSML mark as \x01

// A validator of its own for the keywords that the grammar supports.
bool is_valid(const text::Json& schema, const text::Json& root, const text::Json& value);
// Whether an object in the JSON text has two members whose names are spelled alike.
bool repeats_a_name(std::string_view json);

}  // namespace hadal::grammar
