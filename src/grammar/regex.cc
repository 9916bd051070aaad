// Reads patterns.
#include "grammar/regex.h"

#include <optional>

#include "base/error.h"
#include "grammar/regex_tree.h"
#include "text/unicode.h"

namespace hadal::grammar {
namespace {

constexpr int kMaxNesting = 100;
constexpr int kMaxRepeat = 10'000;

using Node = PatternNode;

bool is_digit(std::uint32_t c) { return c >= '0' && c <= '9'; }
int hex_value(std::uint32_t c) {
  if (is_digit(c)) return static_cast<int>(c - '0');
  const std::uint32_t lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a' + 10) : -1;
}

const CharacterSet& class_of_letter(char letter) {
  static const CharacterSet digit({{'0', '9'}}), word({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}),
      space({{9, 13},
             {' ', ' '},
             {0xA0, 0xA0},
             {0x1680, 0x1680},
             {0x2000, 0x200A},
             {0x2028, 0x2029},
             {0x202F, 0x202F},
             {0x205F, 0x205F},
             {0x3000, 0x3000},
             {0xFEFF, 0xFEFF}}),
      not_digit = digit.complement(), not_word = word.complement(), not_space = space.complement();
  switch (letter) {
    case 'd': return digit;
    case 'w': return word;
    case 's': return space;
    case 'D': return not_digit;
    case 'W': return not_word;
    default: return not_space;
  }
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {
    if (text::valid_utf8_prefix(pattern) != pattern.size())
      fail(ErrorKind::invalid_argument, "the pattern is not UTF-8");
    for (const char *p = pattern.data(), *end = p + pattern.size(); p != end;) {
      offsets_.push_back(static_cast<std::size_t>(p - pattern.data()));
      chars_.push_back(text::decode_valid(p));
    }
    offsets_.push_back(pattern.size());
  }

  // The outermost alternatives, each with its anchors resolved.
  Node parse() {
    Node all{Node::alternatives, {}, {}};
    do {
      const bool begins = take('^');
      Node body = sequence(0);
      const bool ends = take('$');
      if (!at_end() && peek() != '|') stop(peek() == ')' ? "a ')' without its '('" : "an anchor inside the pattern");
      Node anything{Node::repeat, {}, {Node{Node::characters, CharacterSet::all(), {}}}};
      Node whole;
      if (!begins) whole.parts.push_back(anything);
      whole.parts.push_back(std::move(body));
      if (!ends) whole.parts.push_back(std::move(anything));
      all.parts.push_back(std::move(whole));
    } while (take('|'));
    return all;
  }

 private:
  [[noreturn]] void stop(std::string_view what) const {
    fail(ErrorKind::invalid_argument, "pattern \"{}\" has {} at byte {}", pattern_, what, offsets_[at_]);
  }
  bool at_end() const { return at_ == chars_.size(); }
  std::uint32_t peek(std::size_t ahead = 0) const { return at_ + ahead < chars_.size() ? chars_[at_ + ahead] : 0; }
  bool take(std::uint32_t c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }

  Node sequence(int depth) {
    Node result;
    while (!at_end() && peek() != '|' && peek() != ')' && peek() != '$') result.parts.push_back(repeated(depth));
    return result;
  }

  Node repeated(int depth) {
    Node item = atom(depth);
    int min = 0, max = -1;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (peek() == '{' && !at_end()) {
      ++at_;
      min = number();
      max = min;
      if (take(',')) max = peek() == '}' ? -1 : number();
      if (!take('}')) stop("a '{' that is not a repetition; write \\{ for the character");
      if (max >= 0 && max < min) stop("a repetition whose maximum is below its minimum");
    } else {
      return item;
    }
    take('?');  // lazy: the same strings match
    if (!at_end() && (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{'))
      stop("a repetition of a repetition; use a group");
    return Node{Node::repeat, {}, {std::move(item)}, min, max};
  }

  int number() {
    if (!is_digit(peek())) stop("a '{' that is not a repetition; write \\{ for the character");
    int value = 0;
    for (; is_digit(peek()); ++at_) {
      value = value * 10 + static_cast<int>(peek() - '0');
      if (value > kMaxRepeat) stop("a repetition of more than 10000");
    }
    return value;
  }

  Node atom(int depth) {
    switch (peek()) {
      case '(': return group(depth);
      case '[': return Node{Node::characters, character_class(), {}};
      case '.': {
        ++at_;
        return Node{Node::characters, CharacterSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement(), {}};
      }
      case '\\': {
        CharacterSet set;
        if (const auto c = escape(set)) set.add(*c, *c);
        return Node{Node::characters, set, {}};
      }
      case '^': stop("an anchor inside the pattern");
      case '*':
      case '+':
      case '?': stop("a repetition of nothing");
      case '{': stop("a '{' that is not a repetition; write \\{ for the character");
      default: break;
    }
    const std::uint32_t c = peek();
    ++at_;
    return Node{Node::characters, CharacterSet({{c, c}}), {}};
  }

  Node group(int depth) {
    if (depth == kMaxNesting) stop("more than 100 nested groups");
    ++at_;
    if (peek() == '?' && !at_end()) {
      ++at_;
      if (take(':')) {
      } else if (peek() == '<' && peek(1) != '=' && peek(1) != '!') {
        while (!at_end() && !take('>')) ++at_;
      } else {
        stop("look-around or flags, which are not supported");
      }
    }
    Node result{Node::alternatives, {}, {}};
    do result.parts.push_back(sequence(depth + 1));
    while (take('|'));
    if (!at_end() && peek() == '$') stop("an anchor inside a group; only the outermost alternatives may have anchors");
    if (!take(')')) stop("a '(' without its ')'");
    return result;
  }

  // One character, or nothing when `set` got a class.
  std::optional<std::uint32_t> escape(CharacterSet& set) {
    ++at_;
    if (at_end()) stop("a backslash at its end");
    const std::uint32_t c = peek();
    ++at_;
    switch (c) {
      case 't': return '\t';
      case 'n': return '\n';
      case 'r': return '\r';
      case 'f': return '\f';
      case 'v': return '\v';
      case '0':
        if (is_digit(peek())) stop("an octal escape");
        return 0;
      case 'x': return hex(2);
      case 'u': return unicode();
      case 'c': {
        const std::uint32_t letter = peek() | 0x20;
        if (letter < 'a' || letter > 'z') stop("\\c without a letter");
        ++at_;
        return letter & 0x1F;
      }
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S': set.add(class_of_letter(static_cast<char>(c))); return std::nullopt;
      default: break;
    }
    if (is_digit(c) || c == 'k') stop("a back reference, which is not supported");
    if (c == 'b' || c == 'B') stop("a word boundary, which is not supported");
    if (c == 'p' || c == 'P') stop("a Unicode property, which is not supported; list the ranges");
    if (c < 0x80 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) stop("an unknown escape");
    return c;
  }

  std::uint32_t hex(int digits) {
    std::uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = at_end() ? -1 : hex_value(peek());
      if (digit < 0) stop("an escape with too few hexadecimal digits");
      value = value << 4 | static_cast<std::uint32_t>(digit);
    }
    return value;
  }

  std::uint32_t unicode() {
    if (take('{')) {
      std::uint32_t value = 0;
      do {
        const int digit = at_end() ? -1 : hex_value(peek());
        if (digit < 0) stop("an escape with too few hexadecimal digits");
        value = value << 4 | static_cast<std::uint32_t>(digit);
        if (value > 0x10FFFF) stop("an escape beyond U+10FFFF");
        ++at_;
      } while (!take('}'));
      return checked(value);
    }
    const std::uint32_t high = hex(4);
    if (high < 0xD800 || high > 0xDBFF || peek() != '\\' || peek(1) != 'u') return checked(high);
    at_ += 2;
    const std::uint32_t low = hex(4);
    if (low < 0xDC00 || low > 0xDFFF) stop("a surrogate without its partner");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  std::uint32_t checked(std::uint32_t c) const {
    if (c >= 0xD800 && c <= 0xDFFF) stop("a surrogate without its partner");
    return c;
  }

  CharacterSet character_class() {
    ++at_;
    const bool negated = take('^');
    CharacterSet set;
    while (!take(']')) {
      if (at_end()) stop("a '[' without its ']'");
      const std::optional<std::uint32_t> first = member(set);
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < chars_.size()) {
        ++at_;
        const std::optional<std::uint32_t> last = member(set);
        if (!first || !last) stop("a range that begins or ends with a class");
        if (*last < *first) stop("a range in the wrong order");
        set.add(*first, *last);
      } else if (first) {
        set.add(*first, *first);
      }
    }
    return negated ? set.complement() : set;
  }

  std::optional<std::uint32_t> member(CharacterSet& set) {
    if (peek() == '\\') {
      if (peek(1) == 'b') {  // a backspace, in a class
        at_ += 2;
        return '\b';
      }
      return escape(set);
    }
    const std::uint32_t c = peek();
    ++at_;
    return c;
  }

  std::string_view pattern_;
  std::vector<std::uint32_t> chars_;
  std::vector<std::size_t> offsets_;
  std::size_t at_ = 0;
};

}  // namespace

PatternNode parse_pattern(std::string_view pattern) { return Parser(pattern).parse(); }

}  // namespace hadal::grammar
