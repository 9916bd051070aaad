#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace hadal::text {
namespace {

namespace cc = char_class;

// Characters assigned by Unicode 15.1 and 16.0, which utf8proc 2.8 (Unicode 15.0) does not know and the
// `tokenizers` library does.
struct Assigned {
  std::int32_t first, last;
  std::uint8_t what;
};
constexpr Assigned kSince15[] = {
    {0x897, 0x897, cc::mark},       {0x1B4E, 0x1B4F, cc::punct},    {0x1B7F, 0x1B7F, cc::punct},
    {0x1C89, 0x1C8A, cc::letter},   {0x2427, 0x2429, cc::symbol},   {0x2FFC, 0x2FFF, cc::symbol},
    {0x31E4, 0x31E5, cc::symbol},   {0x31EF, 0x31EF, cc::symbol},   {0xA7CB, 0xA7CD, cc::letter},
    {0xA7DA, 0xA7DC, cc::letter},   {0x105C0, 0x105F3, cc::letter}, {0x10D40, 0x10D49, cc::number},
    {0x10D4A, 0x10D65, cc::letter}, {0x10D69, 0x10D6D, cc::mark},   {0x10D6E, 0x10D6E, cc::punct},
    {0x10D6F, 0x10D85, cc::letter}, {0x10D8E, 0x10D8F, cc::symbol}, {0x10EC2, 0x10EC4, cc::letter},
    {0x10EFC, 0x10EFC, cc::mark},   {0x11380, 0x11389, cc::letter}, {0x1138B, 0x1138B, cc::letter},
    {0x1138E, 0x1138E, cc::letter}, {0x11390, 0x113B5, cc::letter}, {0x113B7, 0x113B7, cc::letter},
    {0x113B8, 0x113C0, cc::mark},   {0x113C2, 0x113C2, cc::mark},   {0x113C5, 0x113C5, cc::mark},
    {0x113C7, 0x113CA, cc::mark},   {0x113CC, 0x113D0, cc::mark},   {0x113D1, 0x113D1, cc::letter},
    {0x113D2, 0x113D2, cc::mark},   {0x113D3, 0x113D3, cc::letter}, {0x113D4, 0x113D5, cc::punct},
    {0x113D7, 0x113D8, cc::punct},  {0x113E1, 0x113E2, cc::mark},   {0x116D0, 0x116E3, cc::number},
    {0x11BC0, 0x11BE0, cc::letter}, {0x11BE1, 0x11BE1, cc::punct},  {0x11BF0, 0x11BF9, cc::number},
    {0x11F5A, 0x11F5A, cc::mark},   {0x13460, 0x143FA, cc::letter}, {0x16100, 0x1611D, cc::letter},
    {0x1611E, 0x1612F, cc::mark},   {0x16130, 0x16139, cc::number}, {0x16D40, 0x16D6C, cc::letter},
    {0x16D6D, 0x16D6F, cc::punct},  {0x16D70, 0x16D79, cc::number}, {0x18CFF, 0x18CFF, cc::letter},
    {0x1CC00, 0x1CCEF, cc::symbol}, {0x1CCF0, 0x1CCF9, cc::number}, {0x1CD00, 0x1CEB3, cc::symbol},
    {0x1E5D0, 0x1E5ED, cc::letter}, {0x1E5EE, 0x1E5EF, cc::mark},   {0x1E5F0, 0x1E5F0, cc::letter},
    {0x1E5F1, 0x1E5FA, cc::number}, {0x1E5FF, 0x1E5FF, cc::punct},  {0x1F8B2, 0x1F8BB, cc::symbol},
    {0x1F8C0, 0x1F8C1, cc::symbol}, {0x1FA89, 0x1FA89, cc::symbol}, {0x1FA8F, 0x1FA8F, cc::symbol},
    {0x1FABE, 0x1FABE, cc::symbol}, {0x1FAC6, 0x1FAC6, cc::symbol}, {0x1FADC, 0x1FADC, cc::symbol},
    {0x1FADF, 0x1FADF, cc::symbol}, {0x1FAE9, 0x1FAE9, cc::symbol}, {0x1FBCB, 0x1FBEF, cc::symbol},
    {0x2EBF0, 0x2EE5D, cc::letter},
};

std::uint8_t class_of(std::int32_t cp) {
  std::uint8_t c = 0;
  switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: c = cc::letter; break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: c = cc::mark; break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: c = cc::number; break;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: c = cc::punct; break;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: c = cc::symbol; break;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: c = cc::space; break;
    default: break;
  }
  if ((cp >= 0x09 && cp <= 0x0D) || cp == 0x85) c |= cc::space;
  if (cp == '\n' || cp == '\r') c |= cc::newline;
  if ((cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF)) c |= cc::cjk;
  return c;
}

}  // namespace

const std::uint8_t* char_class_table() {
  static const std::vector<std::uint8_t> table = [] {
    std::vector<std::uint8_t> t(0x110000);
    for (std::int32_t cp = 0; cp < 0x110000; ++cp) t[cp] = class_of(cp);
    for (const Assigned& range : kSince15) std::fill(&t[range.first], &t[range.last] + 1, range.what);
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

void Utf8Stream::append(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_.append(bytes);
    held_.clear();
    bytes = joined;
  }
  // A character that is incomplete begins in the last three bytes.
  const std::size_t from = bytes.size() > 3 ? bytes.size() - 3 : 0;
  std::size_t cut = bytes.size();
  for (std::size_t i = bytes.size(); i-- > from;) {
    if ((static_cast<unsigned char>(bytes[i]) & 0xC0) == 0x80) continue;
    if (next_utf8_unit(bytes.substr(i)).kind == Utf8Unit::incomplete) cut = i;
    break;
  }
  append_replacing_invalid(bytes.substr(0, cut), out);
  held_ = bytes.substr(cut);
}

void Utf8Stream::finish(std::string& out) {
  append_replacing_invalid(held_, out);
  held_.clear();
}

}  // namespace hadal::text
