#include "grammar/characters.h"

#include <algorithm>
#include <array>

#include "text/json.h"

namespace hadal::grammar {
namespace {

// The number of bytes of a code point, and its bytes.
struct Utf8 {
  int size;
  std::array<unsigned char, 4> bytes;
};

Utf8 utf8(std::uint32_t c) {
  const auto byte = [](std::uint32_t value) { return static_cast<unsigned char>(value); };
  const auto cont = [&](int shift) { return byte(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return {1, {byte(c)}};
  if (c < 0x800) return {2, {byte(0xC0 | (c >> 6)), cont(0)}};
  if (c < 0x10000) return {3, {byte(0xE0 | (c >> 12)), cont(6), cont(0)}};
  return {4, {byte(0xF0 | (c >> 18)), cont(12), cont(6), cont(0)}};
}

// The last code point with n bytes.
constexpr std::array<std::uint32_t, 4> kLast = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};

// Edges for the UTF-8 of all code points from first to last, without surrogates between.
void utf8_range(Machine& machine, StateId from, std::uint32_t first, std::uint32_t last, StateId to, NameAction name) {
  // Splits the range until all its code points share the bytes before the first that varies, and vary freely behind it.
  for (const std::uint32_t end : kLast)
    if (first <= end && end < last) {
      utf8_range(machine, from, first, end, to, name);
      return utf8_range(machine, from, end + 1, last, to, name);
    }
  for (std::uint32_t free = 0x3F; free < 0x110000 && last > 0x7F; free = free << 6 | 0x3F) {
    if ((first & ~free) == (last & ~free)) break;
    if ((first & free) != 0) {
      utf8_range(machine, from, first, first | free, to, name);
      return utf8_range(machine, from, (first | free) + 1, last, to, name);
    }
    if ((last & free) != free) {
      utf8_range(machine, from, first, (last & ~free) - 1, to, name);
      return utf8_range(machine, from, last & ~free, last, to, name);
    }
  }
  const Utf8 low = utf8(first), high = utf8(last);
  for (int i = 0; i < low.size; ++i) {
    const StateId next = i + 1 == low.size ? to : machine.state();
    machine.edge(from, low.bytes[i], high.bytes[i], next, name);
    from = next;
  }
}

}  // namespace

CharacterSet::CharacterSet(std::vector<Range> ranges) : ranges_(std::move(ranges)) { normalise(); }

void CharacterSet::add(std::uint32_t first, std::uint32_t last) {
  ranges_.emplace_back(first, last);
  normalise();
}

void CharacterSet::add(const CharacterSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalise();
}

void CharacterSet::normalise() {
  std::vector<Range> parts;
  for (const auto& [first, last] : ranges_) {  // around the surrogates
    if (first <= std::min(last, 0xD7FFu)) parts.emplace_back(first, std::min(last, 0xD7FFu));
    if (std::max(first, 0xE000u) <= last) parts.emplace_back(std::max(first, 0xE000u), last);
  }
  std::sort(parts.begin(), parts.end());
  ranges_.clear();
  for (const Range& range : parts)
    if (!ranges_.empty() && range.first <= ranges_.back().second + 1)
      ranges_.back().second = std::max(ranges_.back().second, range.second);
    else
      ranges_.push_back(range);
}

CharacterSet CharacterSet::complement() const {
  std::vector<Range> gaps;
  std::uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) gaps.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= 0x10FFFF) gaps.emplace_back(next, 0x10FFFF);
  return CharacterSet(std::move(gaps));
}

std::string spelled(std::string_view text, Spelling spelling) {
  if (spelling == Spelling::raw) return std::string(text);
  std::string out;
  text::append_json_escaped(text, out);
  return out;
}

void utf8_edges(Machine& machine, StateId from, const CharacterSet& set, StateId to, NameAction name) {
  for (const auto& [first, last] : set.ranges()) utf8_range(machine, from, first, last, to, name);
}

void CharacterRules::bytes(StateId from, const CharacterSet& set, Spelling spelling, StateId to) {
  for (auto [first, last] : set.ranges()) {
    // In JSON, a few of the ASCII characters have an escape.
    for (; spelling == Spelling::json && first <= std::min(last, std::uint32_t{'\\'}); ++first) {
      const char c = static_cast<char>(first);
      const std::string bytes = spelled({&c, 1}, spelling);
      if (bytes.size() == 1)
        machine_.edge(from, c, to);
      else
        machine_.literal(from, bytes, to);
    }
    if (first <= last) utf8_edges(machine_, from, CharacterSet({{first, last}}), to);
  }
}

void CharacterRules::one_of(StateId from, const CharacterSet& set, Spelling spelling, StateId to) {
  if (set.ranges().empty()) return;
  if (set.ranges().back().second < 0x80 && set.ranges().size() <= 4 && spelling == Spelling::raw)
    return bytes(from, set, spelling, to);
  const auto [it, fresh] = rules_.try_emplace({set, spelling}, Machine::kNoRule);
  if (fresh) {
    it->second = machine_.rule();
    bytes(machine_.rule_at(it->second).start, set, spelling, machine_.rule_at(it->second).final);
  }
  machine_.call(from, it->second, to);
}

RuleId CharacterRules::free_character(Text kind) {
  RuleId& rule = free_[static_cast<int>(kind)];
  if (rule != Machine::kNoRule) return rule;
  rule = machine_.rule();
  machine_.set_character_rule(kind, rule);
  const auto [start, final, names] = machine_.rule_at(rule);
  if (kind == Text::raw) {
    utf8_edges(machine_, start, CharacterSet::all(), final);
    return rule;
  }
  utf8_edges(machine_, start, CharacterSet({{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10FFFF}}), final);
  const StateId escape = machine_.state(), code = machine_.state();
  machine_.edge(start, '\\', escape);
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) machine_.edge(escape, c, final);
  machine_.edge(escape, 'u', code);
  const auto hex = [&](StateId from, std::string_view digits, StateId to) {
    for (const char c : digits) machine_.edge(from, c, to);
  };
  constexpr std::string_view any = "0123456789abcdefABCDEF";
  // The last n digits, freely.
  StateId free[4] = {final};
  for (int i = 1; i < 4; ++i) {
    free[i] = machine_.state();
    hex(free[i], any, free[i - 1]);
  }
  const StateId d = machine_.state(), high2 = machine_.state(), high1 = machine_.state(), slash = machine_.state(),
                u = machine_.state(), low_d = machine_.state(), low = machine_.state();
  hex(code, "0123456789abcefABCEF", free[3]);
  hex(code, "dD", d);
  hex(d, "01234567", free[2]);
  hex(d, "89abAB", high2);
  hex(high2, any, high1);
  hex(high1, any, slash);
  machine_.edge(slash, '\\', u);
  machine_.edge(u, 'u', low_d);
  hex(low_d, "dD", low);
  hex(low, "cdefCDEF", free[2]);
  return rule;
}

}  // namespace hadal::grammar
