// Reading a client's JSON object: every known field has a type and a range, and an error that names both. Unknown fields are
// never an error: clients send many.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/json.h"

namespace hadal::serve {

class Fields {
 public:
  // `path` names the object in messages: "messages[2]", empty for the body. Throws ApiError(400) when it is no object.
  explicit Fields(const text::Json& object, std::string path = {});

  // A field that is null counts as absent, everywhere. All throw ApiError(400) for the wrong type or value.
  const text::Json* find(std::string_view name) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::string> string(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view name, double low, double high) const;
  const text::Json::Array* array(std::string_view name) const;
  std::optional<Fields> object(std::string_view name) const;

  std::string required_string(std::string_view name) const;
  const text::Json::Array& required_array(std::string_view name) const;

  // "messages[2].content"
  std::string path(std::string_view name) const;
  const std::string& path() const { return path_; }
  const text::Json& json() const { return *json_; }

  // Throws: "temperature is 9, expected a number from 0 to 2".
  [[noreturn]] void refuse(std::string_view name, const std::string& expected) const;

 private:
  const text::Json* json_;
  std::string path_;
};

// Throws the same for a value that is no field: `path` names it.
[[noreturn]] void refuse_value(const std::string& path, const text::Json* value, const std::string& expected);

}  // namespace hadal::serve
