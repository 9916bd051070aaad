// A JSON value with the semantics of Python's json module.
//
// The official prompt encoder is Python: tool schemas and tool-call arguments pass through json.loads and
// json.dumps(ensure_ascii=False) on their way into the prompt, so the exact spelling of numbers and the order of
// keys are part of the prompt. General JSON libraries lose both (integers above 64 bits, "1e5" against
// "100000.0"). The same reader serves tokenizer.json.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hadal::text {

// repr(float) of Python.
std::string python_float_repr(double value);

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in order of first appearance
  // A number is kept as Python would print it: "100000.0" for 1e5, all digits of a big integer.
  struct Number {
    std::string text;
    bool is_integer = false;
  };

  Json() = default;
  Json(bool value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  template <std::integral T>
  Json(T value) : value_(Number{std::to_string(value), true}) {}
  template <std::floating_point T>
  Json(T value) : value_(Number{python_float_repr(static_cast<double>(value)), false}) {}
  Json(Number value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  // Reads one JSON document. Accepts and refuses what json.loads does: NaN, Infinity and -Infinity are numbers,
  // raw control characters inside strings are errors, of a repeated key the last value stays at the first place.
  // Differences: nesting deeper than 500 is refused, and a lone surrogate escape becomes U+FFFD, since such a
  // string has no UTF-8 form. Throws Error(invalid_data) that names the byte offset.
  static Json parse(std::string_view text);
  // For what strangers send: repeated keys, numbers that are not finite (also by their size) and bytes that are not UTF-8 are
  // errors as well.
  static Json parse_strict(std::string_view text);
  // As parse, with nullopt instead of an exception.
  static std::optional<Json> try_parse(std::string_view text);

  // json.dumps(value, ensure_ascii=False): separators ", " and ": ".
  std::string dump() const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  const bool* as_bool() const { return std::get_if<bool>(&value_); }
  const std::string* as_string() const { return std::get_if<std::string>(&value_); }
  const Number* as_number() const { return std::get_if<Number>(&value_); }
  const Array* as_array() const { return std::get_if<Array>(&value_); }
  const Object* as_object() const { return std::get_if<Object>(&value_); }
  Array* as_array() { return std::get_if<Array>(&value_); }
  Object* as_object() { return std::get_if<Object>(&value_); }

  // The member of an object; nullptr when absent or when this is no object.
  const Json* find(std::string_view key) const;
  // The integer value; nullopt when this is no integer or does not fit in 64 bits.
  std::optional<long long> as_integer() const;

 private:
  friend class JsonParser;
  void dump_to(std::string& out) const;
  std::variant<std::monostate, bool, Number, std::string, Array, Object> value_;
};

// Appends the JSON string literal of `text`, with quotes, as json.dumps(ensure_ascii=False) writes it.
void append_json_string(std::string_view text, std::string& out);
// The same without the quotes: fragments of one string may be escaped one by one.
void append_json_escaped(std::string_view text, std::string& out);

}  // namespace hadal::text
