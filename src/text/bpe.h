// Byte-pair encoding of one word.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hadal::text {

using TokenId = std::int32_t;

// The vocabulary and merge ranks of a byte-level BPE model. Immutable once built; safe to use from many threads.
class Bpe {
 public:
  struct Merge {
    std::string left, right;  // as bytes
  };

  // `bytes[id]` is the byte string of token `id`; empty where the id belongs to no ordinary token.
  // Merges are in rank order, the first the strongest. Throws Error(invalid_data) when one of the 256 bytes has
  // no token, a merge names an unknown token, or ids do not fit in 18 bits.
  Bpe(std::vector<std::string> bytes, const std::vector<Merge>& merges);

  // Appends the ids of `word`: starting from single bytes, the pair of lowest rank (leftmost among equals) is
  // merged until no pair is left. O(n log n).
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;

  const std::string& bytes(TokenId id) const { return bytes_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return bytes_.size(); }

 private:
  static constexpr std::uint32_t kNoRank = 0x7FFFFFFF;
  std::uint32_t rank_of(TokenId left, TokenId right) const;
  TokenId whole_word(std::string_view word) const;
  void note_crossing(std::string_view token, std::uint32_t rank);
  std::uint64_t char_start(std::string_view character) const;
  std::uint64_t find_char_start(std::string_view character) const;
  template <typename Push>
  void start_symbols(std::string_view word, const Push& push) const;
  void merge_short(TokenId* ids, int count, std::vector<TokenId>& out) const;
  void merge_long(const std::vector<TokenId>& ids, std::vector<TokenId>& out) const;

  std::vector<std::string> bytes_;
  TokenId byte_token_[256];
  std::vector<TokenId> merged_;  // by rank: the token that the merge makes

  // Open addressing; an entry is left << 36 | right << 18 | rank, so that a probe touches one cache line.
  std::vector<std::uint64_t> pairs_;
  std::uint64_t pair_mask_ = 0;
  // One bit for each hash of a pair: most pairs in a text have no merge, and 256 KiB stay in the cache.
  static constexpr std::size_t kFilterWords = 32768;
  std::vector<std::uint64_t> pair_filter_;

  // Shortcut for characters of several bytes. Tokens that hold a part of a character together with bytes of its
  // neighbour are rare and weak; merges inside a character that are stronger than all such tokens that could
  // touch it happen first whatever the neighbours are, so encoding may start from their result.
  // Rank of the strongest such token by the part it holds: the first bytes of a character, or its last ones.
  std::unordered_map<std::string, std::uint32_t> crossing_;
  // By code point below 0x20000, filled on first use: the number of ids << 54 and up to three ids of 18 bits;
  // kByBytes when the bytes must be merged one by one.
  static constexpr std::uint64_t kByBytes = ~std::uint64_t{0};
  static constexpr std::uint32_t kCharStarts = 0x20000;
  std::unique_ptr<std::atomic<std::uint64_t>[]> char_starts_;

  // Words that are one token. A token counts as such once merging its bytes was seen to give it back: some
  // vocabularies hold tokens that merging never reaches.
  struct Slot {
    std::uint32_t hash;
    TokenId id;
  };
  std::vector<Slot> words_;
  std::uint64_t word_mask_ = 0;
  std::size_t longest_ = 0;  // bytes of the longest token
  enum : std::uint8_t { unknown = 0, reached = 1, never_reached = 2 };
  std::unique_ptr<std::atomic<std::uint8_t>[]> reach_;
};

}  // namespace hadal::text
