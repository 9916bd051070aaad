#include "grammar/vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "text/prompt_v41.h"
#include "text/unicode.h"

namespace hadal::grammar {
namespace {

// The number of characters when `bytes` is whole characters of safe text; otherwise more than any limit.
std::uint32_t safe_characters(Text kind, std::string_view bytes) {
  if (text::valid_utf8_prefix(bytes) != bytes.size()) return Machine::kNoLimit;
  std::uint32_t count = 0;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (!is_safe_byte(kind, value)) return Machine::kNoLimit;
    count += (value & 0xC0) != 0x80;
  }
  return count;
}

}  // namespace

std::shared_ptr<const Vocabulary> Vocabulary::of(const text::Tokenizer& tokenizer, std::int32_t end_of_sequence) {
  std::vector<std::string> bytes(tokenizer.vocab_size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<text::TokenId>(i);
    if (!tokenizer.is_control(id)) bytes[i] = tokenizer.token_bytes(id);
  }
  const auto control = [&](std::string_view name) { return tokenizer.find_control(name).value_or(-1); };
  return std::make_shared<const Vocabulary>(
      std::move(bytes), Controls{end_of_sequence, control(text::v41::dsml), control(text::v41::think_close)});
}

Vocabulary::Vocabulary(std::vector<std::string> bytes, const Controls& controls)
    : bytes_(std::move(bytes)), controls_(controls) {
  HADAL_CHECK(controls_.end >= 0 && static_cast<std::size_t>(controls_.end) < bytes_.size());
  bytes_[controls_.end].clear();
  std::vector<std::int32_t> all, others[2];
  std::array<bool, 256> alone{};
  all_text_.assign(words(), 0);
  for (auto& masks : safe_)
    for (Mask& mask : masks) mask.assign(words(), 0);
  for (std::int32_t token = 0; token < static_cast<std::int32_t>(bytes_.size()); ++token) {
    const std::string& text = bytes_[token];
    if (text.empty()) continue;
    if (text.size() == 1) alone[static_cast<unsigned char>(text[0])] = true;
    all.push_back(token);
    set_bit(all_text_, token);
    for (const Text kind : {Text::json, Text::raw}) {
      const std::uint32_t characters = safe_characters(kind, text);
      for (std::uint32_t most = characters; most <= kCounted; ++most) set_bit(safe_[index(kind)][most], token);
      if (characters > kCounted) others[index(kind)].push_back(token);
    }
  }
  for (int byte = 0; byte <= 0xF4; ++byte)
    if (!alone[byte] && byte != 0xC0 && byte != 0xC1)
      fail(ErrorKind::unsupported,
           "constrained output needs a token for every byte; this vocabulary has none for byte {:#04x}", byte);
  all_ = trie_of(std::move(all));
  others_[0] = trie_of(std::move(others[0]));
  others_[1] = trie_of(std::move(others[1]));
}

Trie Vocabulary::trie_of(std::vector<std::int32_t> tokens) const {
  std::stable_sort(tokens.begin(), tokens.end(), [&](std::int32_t a, std::int32_t b) { return bytes_[a] < bytes_[b]; });
  Trie trie;
  std::vector<std::uint32_t> open;  // nodes of the current path
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back())
      trie.nodes[open.back()].next = static_cast<std::uint32_t>(trie.nodes.size());
  };
  std::string_view before;
  for (const std::int32_t token : tokens) {
    const std::string_view text = bytes_[token];
    const auto common = static_cast<std::size_t>(
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
    close(common);
    for (std::size_t i = common; i < text.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(trie.nodes.size()));
      trie.nodes.push_back({static_cast<std::uint8_t>(text[i]), static_cast<std::uint16_t>(i + 1), 0,
                            static_cast<std::uint32_t>(trie.tokens.size())});
    }
    trie.tokens.push_back(token);
    trie.depth = std::max(trie.depth, static_cast<int>(text.size()));
    before = text;
  }
  close(0);
  trie.nodes.push_back({0, 0, 0, static_cast<std::uint32_t>(trie.tokens.size())});
  return trie;
}

}  // namespace hadal::grammar
