// Cuts text into the words that byte-pair merges never cross.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/json.h"
#include "text/unicode.h"

namespace hadal::text {

// Which family's rules a tokenizer.json asks for.
enum class PreTokenizer {
  // DeepSeek V3, R1, V3.1, V3.2, V4, V4.1: three "isolated" splits, each inside the pieces of the one before,
  // then the byte-level mapping.
  deepseek_v3,
};

// Recognises the "pre_tokenizer" object of a tokenizer.json. The patterns are compared as text: an unknown one is
// refused, since a scanner for another pattern would give wrong tokens in silence.
// Throws Error(unsupported) that names the pattern.
PreTokenizer recognise_pretokenizer(const Json& pre_tokenizer);

// Calls word(std::string_view) for each word of `text`, in order; together they are the whole text. `text` must be
// valid UTF-8. A hand-written equivalent of these patterns:
//   1. \p{N}{1,3}
//   2. [U+4E00-U+9FA5 U+3040-U+309F U+30A0-U+30FF]+
//   3. [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ | ?[\p{P}\p{S}]+[\r\n]*
//      | \s*[\r\n]+ | \s+(?!\S) | \s+
template <typename Word>
void for_each_word_deepseek_v3(std::string_view text, const Word& word) {
  namespace cc = char_class;
  static const std::uint8_t* const table = char_class_table();
  constexpr std::uint8_t kZone = cc::number | cc::cjk;
  const char* const end = text.data() + text.size();
  const auto class_at = [&](const char* p, const char** next) -> std::uint8_t {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < 0x80) {
      *next = p + 1;
      return table[byte];
    }
    const char* q = p;
    const std::uint32_t cp = decode_valid(q);
    *next = q;
    return table[cp];
  };
  const auto is_ascii_letter = [](char c) { return static_cast<unsigned char>((c | 0x20) - 'a') < 26; };

  const char* p = text.data();
  const char* gap = p;    // characters since here match no alternative; together they make one word
  std::uint8_t zone = 0;  // splits 1 and 2: a piece ends where the zone changes
  const auto emit = [&](const char* from, const char* to) {
    if (gap < from) word(std::string_view(gap, static_cast<std::size_t>(from - gap)));
    word(std::string_view(from, static_cast<std::size_t>(to - from)));
    gap = p = to;
  };
  // Advances from `q` over characters of the current piece that have a class in `mask`.
  const auto run = [&](const char* q, std::uint8_t mask) {
    while (q < end) {
      const char* next;
      const std::uint8_t c = class_at(q, &next);
      if (!(c & mask) || (c & kZone) != zone) break;
      q = next;
    }
    return q;
  };

  while (p < end) {
    const char* next;
    const std::uint8_t c = class_at(p, &next);
    if ((c & kZone) != zone) {
      if (gap < p) word(std::string_view(gap, static_cast<std::size_t>(p - gap)));
      gap = p;
      zone = c & kZone;
    }
    if (c & cc::number) {
      const char* q = next;
      for (int i = 1; i < 3 && q < end; ++i) {
        const char* after;
        if (!(class_at(q, &after) & cc::number)) break;
        q = after;
      }
      emit(p, q);
      continue;
    }
    // Punctuation glued to ASCII letters: ".append", "_name".
    if ((c & (cc::punct | cc::symbol)) && static_cast<unsigned char>(*p) < 0x80 && next < end &&
        is_ascii_letter(*next)) {
      const char* q = next + 1;
      while (q < end && is_ascii_letter(*q)) ++q;
      emit(p, q);
      continue;
    }
    // Letters and marks, with at most one character in front that is no letter, punctuation, symbol or line break.
    if (c & (cc::letter | cc::mark)) {
      emit(p, run(next, cc::letter | cc::mark));
      continue;
    }
    if (!(c & (cc::punct | cc::symbol | cc::newline)) && next < end) {
      const char* q = run(next, cc::letter | cc::mark);
      if (q > next) {
        emit(p, q);
        continue;
      }
    }
    // Punctuation and symbols, with at most one blank in front and all line breaks behind.
    const char* q = *p == ' ' ? next : p;
    const char* marks = run(q, cc::punct | cc::symbol);
    if (marks > q) {
      emit(p, run(marks, cc::newline));
      continue;
    }
    if (c & cc::space) {
      const char* last_break = nullptr;  // end of the last line break of the white space
      const char* last_start = p;        // start of its last character
      const char* s = p;
      while (s < end) {
        const char* after;
        const std::uint8_t k = class_at(s, &after);
        if (!(k & cc::space) || (k & kZone) != zone) break;
        last_start = s;
        s = after;
        if (k & cc::newline) last_break = s;
      }
      if (last_break) {
        emit(p, last_break);
      } else {
        // The last blank before a visible character stays for the next word, unless it is the only one.
        const bool piece_ends = s == end || (class_at(s, &next) & kZone) != zone;
        emit(p, piece_ends || last_start == p ? s : last_start);
      }
      continue;
    }
    p = next;
  }
  if (gap < end) word(std::string_view(gap, static_cast<std::size_t>(end - gap)));
}

}  // namespace hadal::text
