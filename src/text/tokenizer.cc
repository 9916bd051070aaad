#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace hadal::text {

void Prompt::add_text(std::string_view text) {
  if (text.empty()) return;
  if (!parts_.empty() && !parts_.back().control)
    parts_.back().text += text;
  else
    parts_.push_back({false, std::string(text)});
}

std::string Prompt::to_string() const {
  std::string out;
  for (const Part& part : parts_) out += part.text;
  return out;
}

void Tokenizer::ControlSet::prepare() {
  std::sort(names.begin(), names.end());
  std::size_t i = 0;
  for (unsigned b = 0; b < 256; ++b) {
    first[b] = static_cast<std::uint32_t>(i);
    while (i < names.size() && static_cast<unsigned char>(names[i].first[0]) == b) ++i;
  }
  first[256] = static_cast<std::uint32_t>(i);
}

std::pair<std::size_t, TokenId> Tokenizer::ControlSet::longest_match(std::string_view text) const {
  const auto lead = static_cast<unsigned char>(text[0]);
  auto low = names.begin() + first[lead], high = names.begin() + first[lead + 1];
  std::pair<std::size_t, TokenId> best{0, -1};
  for (std::size_t n = 1; low != high; ++n) {
    // All names in [low, high) begin with the first n bytes of the text; one that is exactly those comes first.
    if (low->first.size() == n) {
      best = {n, low->second};
      ++low;
    }
    if (n >= text.size()) break;
    const auto byte = static_cast<unsigned char>(text[n]);
    const auto at = [n](const auto& name) { return static_cast<unsigned char>(name.first[n]); };
    low = std::lower_bound(low, high, byte, [&](const auto& name, unsigned char b) { return at(name) < b; });
    high = std::upper_bound(low, high, byte, [&](unsigned char b, const auto& name) { return b < at(name); });
  }
  return best;
}

void Tokenizer::encode_valid(std::string_view text, std::vector<TokenId>& out) const {
  // One scanner so far; another family adds a case here.
  HADAL_CHECK(pre_ == PreTokenizer::deepseek_v3);
  for_each_word_deepseek_v3(text, [&](std::string_view word) { bpe_.encode_word(word, out); });
}

void Tokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
  if (valid_utf8_prefix(text) == text.size()) return encode_valid(text, out);
  std::string repaired;
  append_replacing_invalid(text, repaired);
  encode_valid(repaired, out);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> out;
  encode(text, out);
  return out;
}

void Tokenizer::encode_around(std::string_view text, int pass, std::vector<TokenId>& out) const {
  if (pass == 2) return encode_valid(text, out);
  const ControlSet& set = passes_[pass];
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const auto [length, id] = set.first[lead] == set.first[lead + 1] ? std::pair<std::size_t, TokenId>{0, -1}
                                                                     : set.longest_match(text.substr(i));
    if (id < 0) {
      ++i;
      continue;
    }
    encode_around(text.substr(begin, i - begin), pass + 1, out);
    out.push_back(id);
    begin = i += length;
  }
  encode_around(text.substr(begin), pass + 1, out);
}

std::vector<TokenId> Tokenizer::encode_with_special(std::string_view text) const {
  std::vector<TokenId> out;
  std::string repaired;
  append_replacing_invalid(text, repaired);
  encode_around(repaired, 0, out);
  return out;
}

std::vector<TokenId> Tokenizer::encode(const Prompt& prompt) const {
  std::vector<TokenId> out;
  for (const Prompt::Part& part : prompt.parts()) {
    if (part.control)
      out.push_back(control(part.text));
    else
      encode(part.text, out);
  }
  return out;
}

const std::string& Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= bytes_.size())
    fail(ErrorKind::invalid_argument, "token id {} is outside the vocabulary (0 to {})", id, bytes_.size() - 1);
  return bytes_[id];
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids)
    if (!skip_special || !is_special(id)) bytes += token_bytes(id);
  std::string text;
  append_replacing_invalid(bytes, text);
  return text;
}

std::optional<TokenId> Tokenizer::find_control(std::string_view name) const {
  const auto it = controls_.find(std::string(name));
  return it == controls_.end() ? std::nullopt : std::optional<TokenId>(it->second);
}

TokenId Tokenizer::control(std::string_view name) const {
  if (const auto id = find_control(name)) return *id;
  fail(ErrorKind::unsupported, "this tokenizer has no control token {}; the prompt format needs it", name);
}

}  // namespace hadal::text
