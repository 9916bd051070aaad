// A vocabulary as grammars see it: the bytes of every text token as a trie, and sets of tokens that free text takes whole.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/machine.h"
#include "text/tokenizer.h"

namespace hadal::grammar {

// One bit a token.
using Mask = std::vector<std::uint64_t>;
inline void set_bit(Mask& mask, std::int32_t token) { mask[token >> 6] |= std::uint64_t{1} << (token & 63); }

// The tries' nodes in preorder: a walk is one pass over the array, and leaving out a subtree is a jump.
struct TrieNode {
  std::uint8_t byte;
  std::uint16_t depth;         // 1 for a first byte
  std::uint32_t next;          // the node behind this subtree
  std::uint32_t tokens_begin;  // tokens that end here, in Trie::tokens; up to the next node's
};
struct Trie {
  std::vector<TrieNode> nodes;  // a last node ends the list
  std::vector<std::int32_t> tokens;
  int depth = 0;
};

// Immutable; shared by all grammars of a model.
class Vocabulary {
 public:
  struct Controls {
    std::int32_t end = -1;   // end of sequence; must exist
    std::int32_t dsml = -1;  // -1: the vocabulary has none
    std::int32_t end_thinking = -1;
  };

  // Control tokens never match text. Throws Error(unsupported) when a byte of UTF-8 has no token of its own: a grammar could
  // then ask for text that no token can write.
  static std::shared_ptr<const Vocabulary> of(const text::Tokenizer& tokenizer, std::int32_t end_of_sequence);
  // bytes[i]: the text of token i; empty when it has none.
  Vocabulary(std::vector<std::string> bytes, const Controls& controls);

  std::size_t size() const { return bytes_.size(); }
  std::size_t words() const { return (bytes_.size() + 63) / 64; }
  const Controls& controls() const { return controls_; }
  const std::string& bytes(std::int32_t token) const { return bytes_[token]; }
  const Mask& all_text() const { return all_text_; }

  const Trie& all() const { return all_; }
  // Tokens that consist of whole characters of safe text of a kind (at most kCounted of them), and the trie of all others.
  static constexpr std::uint32_t kCounted = 32;
  const Mask& safe(Text kind, std::uint32_t most_characters) const {
    return safe_[index(kind)][std::min(most_characters, kCounted)];
  }
  const Trie& others(Text kind) const { return others_[index(kind)]; }

 private:
  static int index(Text kind) { return kind == Text::raw; }
  Trie trie_of(std::vector<std::int32_t> tokens) const;

  std::vector<std::string> bytes_;
  Controls controls_;
  Mask all_text_;
  Trie all_;
  std::array<std::array<Mask, kCounted + 1>, 2> safe_;
  std::array<Trie, 2> others_;
};

}  // namespace hadal::grammar
