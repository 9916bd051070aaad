// Byte-pair encoding of one word.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
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
  void merge_short(std::string_view word, std::vector<TokenId>& out) const;
  void merge_long(std::string_view word, std::vector<TokenId>& out) const;

  std::vector<std::string> bytes_;
  TokenId byte_token_[256];
  std::vector<TokenId> merged_;  // by rank: the token that the merge makes

  // Open addressing; an entry is left << 36 | right << 18 | rank, so that a probe touches one cache line.
  std::vector<std::uint64_t> pairs_;
  std::uint64_t pair_mask_ = 0;

  // Words that are one token. A token counts as such once merging its bytes was seen to give it back: some
  // vocabularies hold tokens that merging never reaches.
  struct Slot {
    std::uint32_t hash;
    TokenId id;
  };
  std::vector<Slot> words_;
  std::uint64_t word_mask_ = 0;
  enum : std::uint8_t { unknown = 0, reached = 1, never_reached = 2 };
  std::unique_ptr<std::atomic<std::uint8_t>[]> reach_;
};

}  // namespace hadal::text
