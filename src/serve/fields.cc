#include "serve/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "serve/api_error.h"
#include "text/unicode.h"

namespace hadal::serve {

using text::Json;

namespace {

std::string shortened(const Json& value) {
  std::string shown = value.dump();
  if (shown.size() <= 80) return shown;
  shown.resize(80);
  shown.resize(text::valid_utf8_prefix(shown));
  return shown + "...";
}

}  // namespace

void refuse_value(const std::string& path, const Json* value, const std::string& expected) {
  throw ApiError(400,
                 value == nullptr ? fmt::format("{} is missing, expected {}", path, expected)
                                  : fmt::format("{} is {}, expected {}", path, shortened(*value), expected),
                 path, value == nullptr ? "missing_required_parameter" : "invalid_value");
}

Fields::Fields(const Json& object, std::string path) : json_(&object), path_(std::move(path)) {
  if (object.as_object() == nullptr) refuse_value(path_.empty() ? "the body" : path_, &object, "an object");
}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

void Fields::refuse(std::string_view name, const std::string& expected) const {
  refuse_value(path(name), find(name), expected);
}

const Json* Fields::find(std::string_view name) const {
  const Json* value = json_->find(name);
  return value != nullptr && value->is_null() ? nullptr : value;
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (const bool* b = value->as_bool()) return *b;
  refuse(name, "true or false");
}

std::optional<std::string> Fields::string(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (const std::string* s = value->as_string()) return *s;
  refuse(name, "a string");
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<long long> n = value->as_integer();
  // 5.0 is the integer 5 to JSON.
  if (const Json::Number* number = value->as_number(); !n && number != nullptr && !number->is_integer) {
    const double real = std::strtod(number->text.c_str(), nullptr);
    if (std::abs(real) < 9e15 && real == std::trunc(real)) n = static_cast<long long>(real);
  }
  if (n && *n >= low && *n <= high) return *n;
  refuse(name, fmt::format("an integer from {} to {}", low, high));
}

std::optional<double> Fields::number(std::string_view name, double low, double high) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (const Json::Number* n = value->as_number()) {
    const double real = std::strtod(n->text.c_str(), nullptr);
    if (real >= low && real <= high) return real;
  }
  refuse(name, fmt::format("a number from {} to {}", low, high));
}

const Json::Array* Fields::array(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (const Json::Array* a = value->as_array()) return a;
  refuse(name, "an array");
}

std::optional<Fields> Fields::object(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  return Fields(*value, path(name));
}

std::string Fields::required_string(std::string_view name) const {
  std::optional<std::string> value = string(name);
  if (!value) refuse(name, "a string");
  return *std::move(value);
}

const Json::Array& Fields::required_array(std::string_view name) const {
  const Json::Array* value = array(name);
  if (value == nullptr) refuse(name, "an array");
  return *value;
}

}  // namespace hadal::serve
