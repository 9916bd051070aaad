// UTF-8 decoding and the character classes that pre-tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hadal::text {

// One bit a class; a character has several where they overlap (a line feed is both space and newline).
namespace char_class {
inline constexpr std::uint8_t letter = 1;    // \p{L}
inline constexpr std::uint8_t mark = 2;      // \p{M}
inline constexpr std::uint8_t number = 4;    // \p{N}
inline constexpr std::uint8_t punct = 8;     // \p{P}
inline constexpr std::uint8_t symbol = 16;   // \p{S}
inline constexpr std::uint8_t space = 32;    // \s: the White_Space property
inline constexpr std::uint8_t newline = 64;  // CR and LF
inline constexpr std::uint8_t cjk = 128;     // U+4E00-9FA5 and U+3040-30FF, the second split of DeepSeek V3
}  // namespace char_class

// The classes of every code point, 0x110000 bytes, built on first use from the general categories of Unicode 16.
const std::uint8_t* char_class_table();

// Decodes the character at `p`, which must begin valid UTF-8, and advances `p` past it.
inline std::uint32_t decode_valid(const char*& p) {
  const auto byte = [&](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(p[i])); };
  const std::uint32_t lead = byte(0);
  std::uint32_t cp;
  if (lead < 0x80) {
    cp = lead;
    p += 1;
  } else if (lead < 0xE0) {
    cp = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    p += 2;
  } else if (lead < 0xF0) {
    cp = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    p += 3;
  } else {
    cp = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    p += 4;
  }
  return cp;
}

// What begins at the start of a byte string.
struct Utf8Unit {
  enum Kind { character, invalid, incomplete } kind;
  // Bytes of the character, or of the maximal subpart of an ill-formed sequence (Unicode 15, section 3.9); for
  // `incomplete` all remaining bytes, which more bytes could still complete.
  std::size_t length;
};
Utf8Unit next_utf8_unit(std::string_view bytes);  // bytes must not be empty

// Length of the longest prefix that is valid UTF-8.
std::size_t valid_utf8_prefix(std::string_view bytes);

// Appends `bytes` with every maximal ill-formed subpart, a cut-off last character included, replaced by U+FFFD:
// the result of Python's bytes.decode("utf-8", errors="replace").
void append_replacing_invalid(std::string_view bytes, std::string& out);

// The same for bytes that arrive in pieces: only whole characters come out, and a byte that can no longer become
// part of a character is replaced at once, so that nothing waits for text that cannot come.
class Utf8Stream {
 public:
  // Appends to `out` all text that is complete.
  void append(std::string_view bytes, std::string& out);
  // The end of the stream: a cut-off character becomes one U+FFFD.
  void finish(std::string& out);
  bool pending() const { return !held_.empty(); }

 private:
  std::string held_;  // at most 3 bytes: the beginning of a character
};

}  // namespace hadal::text
