#include "text/engram_token_map.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "text/unicode.h"

namespace hadal::text {
namespace {

void append_utf8(utf8proc_int32_t cp, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(cp, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

// The byte alphabet of GPT-2, in which vocabularies spell tokens that need not be text.
std::string spelling(std::string_view bytes) {
  static const std::vector<std::string> alphabet = [] {
    std::vector<std::string> letters(256);
    utf8proc_int32_t extra = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      append_utf8(printable ? b : extra++, letters[static_cast<std::size_t>(b)]);
    }
    return letters;
  }();
  std::string out;
  for (const char c : bytes) out += alphabet[static_cast<unsigned char>(c)];
  return out;
}

bool is_mark(utf8proc_int32_t cp) { return (char_class_table()[cp] & char_class::mark) != 0; }
bool is_space(utf8proc_int32_t cp) { return (char_class_table()[cp] & char_class::space) != 0; }
bool is_blank(utf8proc_int32_t cp) { return cp == ' ' || cp == '\t' || cp == '\r' || cp == '\n'; }

// NFKC, then NFD: together the same as NFKD. utf8proc_NFKD would stop at a NUL, which is a token like any other.
std::vector<utf8proc_int32_t> decomposed(const std::string& text) {
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &raw, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(raw, &std::free);
  if (n < 0) fail(ErrorKind::invalid_data, "a token cannot be normalised: {}", utf8proc_errmsg(n));
  std::vector<utf8proc_int32_t> out;
  const char* p = reinterpret_cast<const char*>(raw);
  for (const char* const end = p + n; p < end;) out.push_back(static_cast<utf8proc_int32_t>(decode_valid(p)));
  return out;
}

// Empty when nothing is left.
std::string normalised(const std::string& text) {
  std::vector<utf8proc_int32_t> chars;
  for (const utf8proc_int32_t cp : decomposed(text)) {
    if (is_mark(cp)) continue;
    if (!is_blank(cp))
      chars.push_back(utf8proc_tolower(cp));
    else if (chars.empty() || chars.back() != ' ')
      chars.push_back(' ');
  }
  // A lone blank stays; the published rule has a placeholder for it while it strips.
  auto begin = chars.begin(), end = chars.end();
  if (chars.size() != 1 || chars.front() != ' ') {
    while (begin != end && is_space(*begin)) ++begin;
    while (begin != end && is_space(*(end - 1))) --end;
  }
  std::string out;
  for (; begin != end; ++begin) append_utf8(*begin, out);
  return out;
}

}  // namespace

std::vector<int32_t> derive_engram_token_map(const Tokenizer& tokenizer, int vocab_size) {
  std::vector<int32_t> map(static_cast<std::size_t>(vocab_size));
  std::unordered_map<std::string, int32_t> ids;
  std::string text;
  for (std::size_t id = 0; id < map.size(); ++id) {
    static const std::string none;
    const std::string& bytes = id < tokenizer.vocab_size() ? tokenizer.token_bytes(static_cast<TokenId>(id)) : none;
    text.clear();
    append_replacing_invalid(bytes, text);
    std::string key;
    if (text.find("\uFFFD") != std::string::npos) {
      key = tokenizer.is_control(static_cast<TokenId>(id)) ? bytes : spelling(bytes);
    } else {
      key = normalised(text);
      if (key.empty()) key = text;
    }
    map[id] = ids.try_emplace(std::move(key), static_cast<int32_t>(ids.size())).first->second;
  }
  return map;
}

int engram_token_map_size(const std::vector<int32_t>& map) {
  return map.empty() ? 0 : *std::max_element(map.begin(), map.end()) + 1;
}

}  // namespace hadal::text
