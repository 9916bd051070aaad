#include "text/bpe.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>

#include "base/error.h"
#include "text/unicode.h"

namespace hadal::text {
namespace {

constexpr int kIdBits = 18;
constexpr std::uint64_t kEmptyPair = ~std::uint64_t{0};
constexpr std::size_t kShortWord = 96;  // symbols

std::uint64_t hash_word(std::string_view word) { return XXH3_64bits(word.data(), word.size()); }

std::uint64_t hash_pair(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key >> 20;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::size_t char_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(left) << kIdBits | static_cast<std::uint64_t>(right);
}

}  // namespace

Bpe::Bpe(std::vector<std::string> bytes, const std::vector<Merge>& merges) : bytes_(std::move(bytes)) {
  if (bytes_.size() >= (std::size_t{1} << kIdBits) || merges.size() >= (std::size_t{1} << kIdBits) - 1)
    fail(ErrorKind::unsupported, "the vocabulary has {} ids and {} merges; at most {} are supported", bytes_.size(),
         merges.size(), (1 << kIdBits) - 2);
  words_.assign(std::bit_ceil(bytes_.size() * 2 + 2), Slot{0, -1});
  word_mask_ = words_.size() - 1;
  for (std::size_t id = 0; id < bytes_.size(); ++id) {
    if (bytes_[id].empty()) continue;
    longest_ = std::max(longest_, bytes_[id].size());
    const std::uint64_t hash = hash_word(bytes_[id]);
    std::uint64_t i = hash & word_mask_;
    while (words_[i].id >= 0) i = (i + 1) & word_mask_;
    words_[i] = {static_cast<std::uint32_t>(hash >> 32), static_cast<TokenId>(id)};
  }
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    byte_token_[b] = whole_word({&c, 1});
    if (byte_token_[b] < 0) fail(ErrorKind::invalid_data, "the vocabulary has no token for byte 0x{:02X}", b);
  }
  pairs_.assign(std::bit_ceil(merges.size() * 2 + 2), kEmptyPair);
  pair_mask_ = pairs_.size() - 1;
  pair_filter_.assign(kFilterWords, 0);
  merged_.reserve(merges.size());
  std::string joined;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    joined.assign(merges[rank].left).append(merges[rank].right);
    const TokenId left = whole_word(merges[rank].left);
    const TokenId right = whole_word(merges[rank].right);
    const TokenId both = whole_word(joined);
    if (left < 0 || right < 0 || both < 0)
      fail(ErrorKind::invalid_data, "merge {} names a token that the vocabulary lacks", rank);
    merged_.push_back(both);
    const std::uint64_t key = pair_key(left, right);
    const std::uint64_t hash = hash_pair(key);
    pair_filter_[hash / 64 & (kFilterWords - 1)] |= std::uint64_t{1} << hash % 64;
    std::uint64_t i = hash & pair_mask_;
    while (pairs_[i] != kEmptyPair && pairs_[i] >> kIdBits != key) i = (i + 1) & pair_mask_;
    // Of a repeated merge the last rank counts, as in the reader of the format's own library.
    pairs_[i] = key << kIdBits | rank;
    note_crossing(joined, static_cast<std::uint32_t>(rank));
  }
  char_starts_ = std::make_unique<std::atomic<std::uint64_t>[]>(kCharStarts);
  reach_ = std::make_unique<std::atomic<std::uint8_t>[]>(bytes_.size());
}

std::uint32_t Bpe::rank_of(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  const std::uint64_t hash = hash_pair(key);
  if (!(pair_filter_[hash / 64 & (kFilterWords - 1)] >> hash % 64 & 1)) return kNoRank;
  for (std::uint64_t i = hash & pair_mask_;; i = (i + 1) & pair_mask_) {
    const std::uint64_t entry = pairs_[i];
    if (entry >> kIdBits == key) return static_cast<std::uint32_t>(entry & ((1u << kIdBits) - 1));
    if (entry == kEmptyPair) return kNoRank;
  }
}

TokenId Bpe::whole_word(std::string_view word) const {
  const std::uint64_t hash = hash_word(word);
  for (std::uint64_t i = hash & word_mask_; words_[i].id >= 0; i = (i + 1) & word_mask_) {
    if (words_[i].hash == static_cast<std::uint32_t>(hash >> 32) && bytes_[words_[i].id] == word) return words_[i].id;
  }
  return -1;
}

// Notes the parts of characters that `token` holds beside bytes of another character.
void Bpe::note_crossing(std::string_view token, std::uint32_t rank) {
  const auto note = [&](std::string_view part) {
    const auto [it, fresh] = crossing_.emplace(part, rank);
    if (!fresh) it->second = std::min(it->second, rank);
  };
  std::size_t head = 0;
  while (head < token.size() && is_continuation(token[head])) ++head;
  if (head == token.size()) return;
  if (head > 0) note(token.substr(0, head));
  std::size_t last = token.size() - 1;
  while (last > 0 && is_continuation(token[last])) --last;
  if (last > 0 && token.size() - last < char_length(token[last])) note(token.substr(last));
}

std::uint64_t Bpe::find_char_start(std::string_view character) const {
  std::uint32_t limit = kNoRank;
  for (std::size_t i = 1; i < character.size(); ++i) {
    for (const auto part : {character.substr(0, i), character.substr(i)}) {
      const auto it = crossing_.find(std::string(part));
      if (it != crossing_.end()) limit = std::min(limit, it->second);
    }
  }
  TokenId ids[4];
  int n = 0;
  for (const char c : character) ids[n++] = byte_token_[static_cast<unsigned char>(c)];
  for (;;) {
    std::uint32_t best = kNoRank;
    int at = 0;
    for (int i = 0; i + 1 < n; ++i) {
      const std::uint32_t rank = rank_of(ids[i], ids[i + 1]);
      if (rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best >= limit) break;
    ids[at] = merged_[best];
    std::copy(ids + at + 2, ids + n, ids + at + 1);
    --n;
  }
  if (n > 3) return kByBytes;
  std::uint64_t start = static_cast<std::uint64_t>(n) << 3 * kIdBits;
  for (int i = 0; i < n; ++i) start |= static_cast<std::uint64_t>(ids[i]) << i * kIdBits;
  return start;
}

std::uint64_t Bpe::char_start(std::string_view character) const {
  const char* p = character.data();
  const std::uint32_t cp = decode_valid(p);
  if (cp >= kCharStarts) return kByBytes;
  std::uint64_t start = char_starts_[cp].load(std::memory_order_relaxed);
  if (start == 0) char_starts_[cp].store(start = find_char_start(character), std::memory_order_relaxed);
  return start;
}

template <typename Push>
void Bpe::start_symbols(std::string_view word, const Push& push) const {
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = char_length(word[i]);
    const std::uint64_t start = length == 1 ? kByBytes : char_start(word.substr(i, length));
    if (start == kByBytes) {
      for (std::size_t k = 0; k < length; ++k) push(byte_token_[static_cast<unsigned char>(word[i + k])]);
    } else {
      const int n = static_cast<int>(start >> 3 * kIdBits);
      for (int k = 0; k < n; ++k) push(static_cast<TokenId>(start >> k * kIdBits & ((1u << kIdBits) - 1)));
    }
    i += length;
  }
}

void Bpe::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  if (word.size() == 1) {
    out.push_back(byte_token_[static_cast<unsigned char>(word[0])]);
    return;
  }
  const TokenId whole = word.size() <= longest_ ? whole_word(word) : -1;
  // Relaxed is enough: the flag guards nothing, and every thread computes the same value.
  std::uint8_t reach = never_reached;
  if (whole >= 0) reach = reach_[whole].load(std::memory_order_relaxed);
  if (reach == reached) {
    out.push_back(whole);
    return;
  }
  const std::size_t before = out.size();
  TokenId ids[kShortWord];
  std::size_t n = 0;
  if (word.size() <= kShortWord * 3)
    start_symbols(word, [&](TokenId id) {
      if (n < kShortWord) ids[n] = id;
      ++n;
    });
  if (n > 0 && n <= kShortWord) {
    merge_short(ids, static_cast<int>(n), out);
  } else {
    std::vector<TokenId> many;
    many.reserve(word.size());
    start_symbols(word, [&](TokenId id) { many.push_back(id); });
    merge_long(many, out);
  }
  if (reach == unknown) {
    reach = out.size() == before + 1 && out.back() == whole ? reached : never_reached;
    reach_[whole].store(reach, std::memory_order_relaxed);
  }
}

// Ranks and positions share one word, so that the smallest is the next merge: lowest rank, then leftmost.
void Bpe::merge_short(TokenId* ids, int count, std::vector<TokenId>& out) const {
  constexpr int kPositionBits = 7;
  static_assert(kShortWord <= 1u << kPositionBits);
  constexpr std::int32_t kNone = 0x7FFFFFFF;
  std::int32_t order[kShortWord];  // of the pair that starts here
  const auto pair_order = [&](int i) {
    const std::uint32_t rank = rank_of(ids[i], ids[i + 1]);
    return rank == kNoRank ? kNone : static_cast<std::int32_t>(rank << kPositionBits) | i;
  };
  for (int i = 0; i + 1 < count; ++i) order[i] = pair_order(i);
  while (count > 1) {
    std::int32_t best = kNone;
    for (int i = 0; i + 1 < count; ++i) best = std::min(best, order[i]);
    if (best == kNone) break;
    const int at = best & ((1 << kPositionBits) - 1);
    ids[at] = merged_[best >> kPositionBits];
    --count;
    for (int i = at + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      order[i] = i + 1 < count ? (order[i + 1] == kNone ? kNone : order[i + 1] - 1) : kNone;
    }
    if (at + 1 < count) order[at] = pair_order(at);
    if (at > 0) order[at - 1] = pair_order(at - 1);
  }
  out.insert(out.end(), ids, ids + count);
}

// The same order with a queue. An entry is rank << 32 | position; it is stale when the pair at that position has
// another rank by now.
void Bpe::merge_long(const std::vector<TokenId>& ids, std::vector<TokenId>& out) const {
  struct Symbol {
    TokenId id;
    std::int32_t previous, next;
    std::uint32_t rank;  // of the pair that starts here
  };
  const auto n = static_cast<std::int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  std::vector<std::uint64_t> entries;
  const auto entry = [](std::uint32_t rank, std::int32_t at) {
    return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(at);
  };
  for (std::int32_t i = 0; i < n; ++i) {
    const TokenId id = ids[static_cast<std::size_t>(i)];
    const std::uint32_t rank = i + 1 < n ? rank_of(id, ids[static_cast<std::size_t>(i) + 1]) : kNoRank;
    symbols[i] = {id, i - 1, i + 1 < n ? i + 1 : -1, rank};
    if (rank != kNoRank) entries.push_back(entry(rank, i));
  }
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> queue({}, std::move(entries));
  const auto consider = [&](std::int32_t at) {
    if (at < 0) return;
    Symbol& s = symbols[at];
    s.rank = s.next < 0 ? kNoRank : rank_of(s.id, symbols[s.next].id);
    if (s.rank != kNoRank) queue.push(entry(s.rank, at));
  };
  while (!queue.empty()) {
    const auto rank = static_cast<std::uint32_t>(queue.top() >> 32);
    const auto at = static_cast<std::int32_t>(queue.top() & 0xFFFFFFFF);
    queue.pop();
    Symbol& left = symbols[at];
    if (left.rank != rank) continue;
    Symbol& right = symbols[left.next];
    left.id = merged_[rank];
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next >= 0) symbols[left.next].previous = at;
    consider(left.previous);
    consider(at);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace hadal::text
