#include "text/unicode.h"

#include <utf8proc.h>

#include <cstring>
#include <vector>

namespace hadal::text {
namespace {

std::uint8_t class_of(std::int32_t cp) {
  std::uint8_t c = 0;
  switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: c = char_class::letter; break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: c = char_class::mark; break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: c = char_class::number; break;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: c = char_class::punct; break;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: c = char_class::symbol; break;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: c = char_class::space; break;
    default: break;
  }
  if ((cp >= 0x09 && cp <= 0x0D) || cp == 0x85) c |= char_class::space;
  if (cp == '\n' || cp == '\r') c |= char_class::newline;
  if ((cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF)) c |= char_class::cjk;
  return c;
}

}  // namespace

const std::uint8_t* char_class_table() {
  static const std::vector<std::uint8_t> table = [] {
    std::vector<std::uint8_t> t(0x110000);
    for (std::int32_t cp = 0; cp < 0x110000; ++cp) t[cp] = class_of(cp);
    return t;
  }();
  return table.data();
}

Utf8Unit next_utf8_unit(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Utf8Unit::character, 1};
  // The second byte is restricted further after E0 (overlong), ED (surrogates), F0 (overlong) and F4 (too large).
  std::size_t length;
  unsigned low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Unit::invalid, 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= bytes.size()) return {Utf8Unit::incomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Unit::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Unit::character, length};
}

std::size_t valid_utf8_prefix(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    std::uint64_t word;
    if (i + 8 <= bytes.size() && (std::memcpy(&word, bytes.data() + i, 8), (word & 0x8080808080808080u) == 0)) {
      i += 8;
      continue;
    }
    const Utf8Unit unit = next_utf8_unit(bytes.substr(i));
    if (unit.kind != Utf8Unit::character) break;
    i += unit.length;
  }
  return i;
}

void append_replacing_invalid(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t good = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) return;
    out += "\xEF\xBF\xBD";
    bytes.remove_prefix(next_utf8_unit(bytes).length);
  }
}

}  // namespace hadal::text
