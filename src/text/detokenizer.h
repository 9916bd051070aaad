// Token ids to text while they are generated.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace hadal::text {

// A stretch of output: text, or one control token.
struct TokenPiece {
  std::string text;      // whole characters; for a control token its name
  bool control = false;  // decided by the token's id: text that merely spells a control token is not one
};

// Turns a stream of ids into pieces. Text comes out as soon as its last byte is there, never half a character;
// bytes that are not UTF-8 become U+FFFD as soon as that is certain. The joined text of all pieces equals
// Tokenizer::decode of all ids.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}  // keeps the reference

  // Appends zero, one or two pieces. Throws Error(invalid_argument) when `id` is outside the vocabulary.
  void push(TokenId id, std::vector<TokenPiece>& out);
  // The end of the output: a cut-off character comes out as U+FFFD.
  void finish(std::vector<TokenPiece>& out);

 private:
  const Tokenizer& tokenizer_;
  Utf8Stream bytes_;
};

}  // namespace hadal::text
