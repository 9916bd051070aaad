// The tokenizer of a checkpoint: tokenizer.json in, token ids out, and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/bpe.h"
#include "text/pretokenizer.h"

namespace hadal::text {

// A prompt before tokenisation: control tokens by name, and text. Text never becomes a control token, whatever it
// contains, so what a user writes cannot open a turn, close the thinking or forge a tool call.
class Prompt {
 public:
  struct Part {
    bool control;  // a control token, named by `text`
    std::string text;
  };
  void add_control(std::string_view name) { parts_.push_back({true, std::string(name)}); }
  void add_text(std::string_view text);
  const std::vector<Part>& parts() const { return parts_; }
  // The prompt as one string. Tokenising that string with control tokens recognised gives the same ids as
  // Tokenizer::encode(Prompt) exactly when no text part spells a control token.
  std::string to_string() const;

 private:
  std::vector<Part> parts_;  // two text parts never touch: joined, they are tokenised as one
};

// Immutable after loading; all const members are safe to call from several threads.
class Tokenizer {
 public:
  // `path` is a tokenizer.json or a folder that holds one. Throws Error: io when it cannot be read, invalid_data
  // when it is damaged, unsupported when it belongs to a family that this version does not know.
  static Tokenizer load(const std::filesystem::path& path);
  // The same from memory; `name` stands for the file in messages.
  static Tokenizer from_json(std::string_view json, const std::string& name);

  // Appends the ids of plain text: control tokens are not recognised in it, and no BOS is added. Bytes that are
  // not UTF-8 are first replaced by U+FFFD, one for each maximal ill-formed subpart, as Python's
  // bytes.decode("utf-8", errors="replace") does.
  void encode(std::string_view text, std::vector<TokenId>& out) const;
  std::vector<TokenId> encode(std::string_view text) const;
  // The same, with every added token's spelling in the text becoming that token (leftmost, then longest; tokens
  // marked "normalized" are looked for after the others, as the `tokenizers` library does). For raw prompts only.
  std::vector<TokenId> encode_with_special(std::string_view text) const;
  // Throws Error(unsupported) when the vocabulary lacks a control token that the prompt names.
  std::vector<TokenId> encode(const Prompt& prompt) const;

  // The bytes of a token: a piece of UTF-8, or an added token's spelling. Empty for an unused id.
  // Throws Error(invalid_argument) when `id` is outside the vocabulary.
  const std::string& token_bytes(TokenId id) const;
  // The text of `ids`; ill-formed UTF-8 is replaced as in encode. `skip_special` leaves out tokens that the file
  // marks "special" (in V4: BOS, EOS, placeholders, but not <think> or the DSML mark).
  std::string decode(const std::vector<TokenId>& ids, bool skip_special = false) const;

  // Control tokens are the file's added_tokens, always found by name: the same name has other ids in other models.
  std::optional<TokenId> find_control(std::string_view name) const;
  TokenId control(std::string_view name) const;  // throws Error(unsupported) when absent
  bool is_control(TokenId id) const { return flag(id, kControl); }
  bool is_special(TokenId id) const { return flag(id, kSpecial); }

  // One more than the largest id. A model's embedding may have more rows.
  std::size_t vocab_size() const { return bytes_.size(); }

 private:
  enum : std::uint8_t { kControl = 1, kSpecial = 2 };
  // The spellings of added tokens, sorted: a match narrows the range byte by byte.
  struct ControlSet {
    std::vector<std::pair<std::string, TokenId>> names;
    std::uint32_t first[257] = {};  // range of `names` by first byte
    void prepare();
    // The longest name that `text` begins with; npos length when none.
    std::pair<std::size_t, TokenId> longest_match(std::string_view text) const;
  };

  Tokenizer(Bpe bpe, PreTokenizer pre) : bpe_(std::move(bpe)), pre_(pre) {}
  bool flag(TokenId id, std::uint8_t bit) const {
    return id >= 0 && static_cast<std::size_t>(id) < flags_.size() && (flags_[id] & bit);
  }
  void encode_valid(std::string_view text, std::vector<TokenId>& out) const;
  void encode_around(std::string_view text, int pass, std::vector<TokenId>& out) const;

  Bpe bpe_;
  PreTokenizer pre_;
  std::vector<std::string> bytes_;
  std::vector<std::uint8_t> flags_;
  std::unordered_map<std::string, TokenId> controls_;
  ControlSet passes_[2];  // not "normalized", then "normalized"
};

}  // namespace hadal::text
