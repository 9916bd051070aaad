#include "text/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <unordered_map>

#include "base/error.h"
#include "text/unicode.h"

namespace hadal::text {
namespace {

constexpr int kMaxDepth = 500;

void append_utf8(std::uint32_t cp, std::string& out) {
  if (cp < 0x80) {
    out += static_cast<char>(cp);
  } else if (cp < 0x800) {
    out += static_cast<char>(0xC0 | (cp >> 6));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  } else if (cp < 0x10000) {
    out += static_cast<char>(0xE0 | (cp >> 12));
    out += static_cast<char>(0x80 | ((cp >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (cp >> 18));
    out += static_cast<char>(0x80 | ((cp >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((cp >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  }
}

struct ParseFailure {
  std::size_t offset;
  const char* what;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool has_repeated_keys(const Json::Object& object) {
  const std::size_t n = object.size();
  if (n < 2) return false;
  bool repeated = false;
  if (n <= 8) {
    for (std::size_t i = 1; i < n && !repeated; ++i)
      for (std::size_t j = 0; j < i; ++j) repeated |= object[i].first == object[j].first;
  } else {
    std::vector<std::size_t> hashes(n);
    for (std::size_t i = 0; i < n; ++i) hashes[i] = std::hash<std::string>()(object[i].first);
    std::sort(hashes.begin(), hashes.end());
    if (std::adjacent_find(hashes.begin(), hashes.end()) == hashes.end()) return false;
    // Equal hashes are only a suspicion.
    std::vector<std::string_view> keys(n);
    for (std::size_t i = 0; i < n; ++i) keys[i] = object[i].first;
    std::sort(keys.begin(), keys.end());
    repeated = std::adjacent_find(keys.begin(), keys.end()) != keys.end();
  }
  return repeated;
}

// Keeps the last value of a repeated key at the place of the first.
void merge_repeated_keys(Json::Object& object) {
  Json::Object merged;
  std::unordered_map<std::string, std::size_t> place;
  for (auto& member : object) {
    const auto [it, fresh] = place.emplace(member.first, merged.size());
    if (fresh)
      merged.push_back(std::move(member));
    else
      merged[it->second].second = std::move(member.second);
  }
  object = std::move(merged);
}

}  // namespace

class JsonParser {
 public:
  explicit JsonParser(std::string_view text, bool strict = false) : text_(text), strict_(strict) {}

  Json document() {
    skip_space();
    Json value = this->value(0);
    skip_space();
    if (pos_ != text_.size()) stop("text after the end of the document");
    return value;
  }

 private:
  [[noreturn]] void stop(const char* what) const { throw ParseFailure{pos_, what}; }
  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  void skip_space() {
    while (pos_ < text_.size() &&
           (text_[pos_] == ' ' || text_[pos_] == '\n' || text_[pos_] == '\t' || text_[pos_] == '\r'))
      ++pos_;
  }
  bool take(std::string_view word) {
    if (text_.substr(pos_, word.size()) != word) return false;
    pos_ += word.size();
    return true;
  }

  Json value(int depth) {
    if (depth > kMaxDepth) stop("nested too deeply");
    switch (peek()) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': return Json(string());
      case 't':
        if (take("true")) return Json(true);
        break;
      case 'f':
        if (take("false")) return Json(false);
        break;
      case 'n':
        if (take("null")) return Json();
        break;
      case 'N':
        if (!strict_ && take("NaN")) return Json(Json::Number{"NaN", false});
        break;
      case 'I':
        if (!strict_ && take("Infinity")) return Json(Json::Number{"Infinity", false});
        break;
      default:
        if (!strict_ && take("-Infinity")) return Json(Json::Number{"-Infinity", false});
        if (peek() == '-' || is_digit(peek())) return number();
    }
    stop(pos_ < text_.size() ? "expected a value" : "the document ends too early");
  }

  Json number() {
    const std::size_t begin = pos_;
    if (peek() == '-') ++pos_;
    if (!is_digit(peek())) stop("expected a digit");
    if (peek() == '0')
      ++pos_;
    else
      while (is_digit(peek())) ++pos_;
    bool integer = true;
    // A fraction or exponent without digits is not part of the number (Python's number pattern).
    if (peek() == '.' && pos_ + 1 < text_.size() && is_digit(text_[pos_ + 1])) {
      integer = false;
      ++pos_;
      while (is_digit(peek())) ++pos_;
    }
    if (peek() == 'e' || peek() == 'E') {
      std::size_t p = pos_ + 1;
      if (p < text_.size() && (text_[p] == '+' || text_[p] == '-')) ++p;
      if (p < text_.size() && is_digit(text_[p])) {
        integer = false;
        while (p < text_.size() && is_digit(text_[p])) ++p;
        pos_ = p;
      }
    }
    std::string literal(text_.substr(begin, pos_ - begin));
    if (integer) return Json(Json::Number{literal == "-0" ? "0" : std::move(literal), true});
    // strtod rounds correctly and, unlike from_chars, gives the infinity or zero of an out-of-range literal.
    const double real = std::strtod(literal.c_str(), nullptr);
    if (strict_ && std::isinf(real)) stop("a number that is too large");
    return Json(Json::Number{python_float_repr(real), false});
  }

  std::uint32_t hex4() {
    std::uint32_t cp = 0;
    if (pos_ + 4 > text_.size()) stop("bad \\u escape");
    const char* begin = text_.data() + pos_;
    const auto [end, error] = std::from_chars(begin, begin + 4, cp, 16);
    if (error != std::errc() || end != begin + 4) stop("bad \\u escape");
    pos_ += 4;
    return cp;
  }

  void escape(std::string& out) {
    const char c = peek();
    ++pos_;
    switch (c) {
      case '"': out += '"'; return;
      case '\\': out += '\\'; return;
      case '/': out += '/'; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'n': out += '\n'; return;
      case 'r': out += '\r'; return;
      case 't': out += '\t'; return;
      case 'u': break;
      default: --pos_; stop("bad escape");
    }
    std::uint32_t cp = hex4();
    if (cp >= 0xD800 && cp < 0xDC00 && text_.substr(pos_, 2) == "\\u") {
      const std::size_t back = pos_;
      pos_ += 2;
      const std::uint32_t low = hex4();
      if (low >= 0xDC00 && low < 0xE000)
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
      else
        pos_ = back;
    }
    append_utf8(cp >= 0xD800 && cp < 0xE000 ? 0xFFFD : cp, out);
  }

  std::string string() {
    ++pos_;  // the opening quote
    std::string out;
    for (;;) {
      const std::size_t begin = pos_;
      while (pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\\' &&
             static_cast<unsigned char>(text_[pos_]) >= 0x20)
        ++pos_;
      out.append(text_.substr(begin, pos_ - begin));
      if (pos_ >= text_.size()) stop("a string has no closing quote");
      if (text_[pos_] == '"') break;
      if (text_[pos_] != '\\') stop("a control character inside a string");
      ++pos_;
      escape(out);
    }
    ++pos_;
    return out;
  }

  Json array(int depth) {
    ++pos_;
    Json::Array items;
    skip_space();
    if (peek() == ']') {
      ++pos_;
      return Json(std::move(items));
    }
    for (;;) {
      skip_space();
      items.push_back(value(depth + 1));
      skip_space();
      if (peek() == ']') break;
      if (peek() != ',') stop("expected ',' or ']'");
      ++pos_;
    }
    ++pos_;
    return Json(std::move(items));
  }

  Json object(int depth) {
    ++pos_;
    Json::Object members;
    skip_space();
    if (peek() == '}') {
      ++pos_;
      return Json(std::move(members));
    }
    for (;;) {
      skip_space();
      if (peek() != '"') stop("expected a quoted key");
      std::string key = string();
      skip_space();
      if (peek() != ':') stop("expected ':'");
      ++pos_;
      skip_space();
      members.emplace_back(std::move(key), value(depth + 1));
      skip_space();
      if (peek() == '}') break;
      if (peek() != ',') stop("expected ',' or '}'");
      ++pos_;
    }
    ++pos_;
    if (has_repeated_keys(members)) {
      if (strict_) stop("an object repeats a key");
      merge_repeated_keys(members);
    }
    return Json(std::move(members));
  }

  std::string_view text_;
  bool strict_;
  std::size_t pos_ = 0;
};

namespace {

Json parse_or_fail(std::string_view text, bool strict) {
  try {
    return JsonParser(text, strict).document();
  } catch (const ParseFailure& failure) {
    fail(ErrorKind::invalid_data, "not valid JSON: {} at byte {}", failure.what, failure.offset);
  }
}

}  // namespace

Json Json::parse(std::string_view text) { return parse_or_fail(text, false); }

Json Json::parse_strict(std::string_view text) {
  if (const std::size_t valid = valid_utf8_prefix(text); valid < text.size())
    fail(ErrorKind::invalid_data, "not valid JSON: the bytes at {} are not UTF-8", valid);
  return parse_or_fail(text, true);
}

std::optional<Json> Json::try_parse(std::string_view text) {
  try {
    return JsonParser(text).document();
  } catch (const ParseFailure&) { return std::nullopt; }
}

const Json* Json::find(std::string_view key) const {
  if (const Object* object = as_object())
    for (const auto& [name, value] : *object)
      if (name == key) return &value;
  return nullptr;
}

std::optional<long long> Json::as_integer() const {
  const Number* number = as_number();
  if (!number || !number->is_integer) return std::nullopt;
  long long result = 0;
  const char* end = number->text.data() + number->text.size();
  const auto [stop, error] = std::from_chars(number->text.data(), end, result);
  if (error != std::errc() || stop != end) return std::nullopt;
  return result;
}

std::string Json::dump() const {
  std::string out;
  dump_to(out);
  return out;
}

void Json::dump_to(std::string& out) const {
  if (is_null()) {
    out += "null";
  } else if (const bool* b = as_bool()) {
    out += *b ? "true" : "false";
  } else if (const Number* n = as_number()) {
    out += n->text;
  } else if (const std::string* s = as_string()) {
    append_json_string(*s, out);
  } else if (const Array* a = as_array()) {
    out += '[';
    for (std::size_t i = 0; i < a->size(); ++i) {
      if (i) out += ", ";
      (*a)[i].dump_to(out);
    }
    out += ']';
  } else {
    const Object& o = *as_object();
    out += '{';
    for (std::size_t i = 0; i < o.size(); ++i) {
      if (i) out += ", ";
      append_json_string(o[i].first, out);
      out += ": ";
      o[i].second.dump_to(out);
    }
    out += '}';
  }
}

void append_json_escaped(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[(c >> 4) & 0xF];
          out += kHex[c & 0xF];
        } else {
          out += c;
        }
    }
  }
}

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  append_json_escaped(text, out);
  out += '"';
}

std::string python_float_repr(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(result.ptr - buffer));
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string out;
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c == '-')
      out += '-';
    else if (c != '.')
      digits += c;
  }
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out.append(1, '.').append(digits, 1);
    out += 'e';
    out += exponent < 0 ? '-' : '+';
    const std::string magnitude = std::to_string(std::abs(exponent));
    if (magnitude.size() < 2) out += '0';
    return out + magnitude;
  }
  if (exponent < 0) return out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out.append(digits).append(whole - digits.size(), '0').append(".0");
  return out.append(digits, 0, whole).append(1, '.').append(digits, whole);
}

}  // namespace hadal::text
