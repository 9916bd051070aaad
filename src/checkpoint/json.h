// Strict JSON for files that decide how bytes are read: a parser and a reader of typed, named fields.
#pragma once

#include "base/error.h"

#include <boost/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace hadal {

namespace json = boost::json;

// Parses one JSON text. Throws invalid_data, starting with `what`, on a syntax error (with the byte offset),
// invalid UTF-8, more than 32 levels, or a key that appears twice in one object: safetensors headers and
// configurations with duplicates have no agreed meaning.
json::value parse_json(std::string_view text, std::string_view what);

// Reads a whole text file. Throws io (with the path and errno) and invalid_data when it is larger than
// `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, size_t max_bytes = size_t{64} << 20);

// Typed access to the members of an object. Each getter throws invalid_data naming the file, the member's
// full path
// ("config.json: text_config.hidden_size") and both the value and what was expected.
class JsonFields {
 public:
  // `what` names the file, `prefix` the path of the object in it: "" or "text_config.".
  JsonFields(const json::value& value, std::string what, std::string prefix);

  bool has(std::string_view name) const;
  const json::value& get(std::string_view name);
  int64_t integer(std::string_view name, int64_t min, int64_t max);
  // Accepts integers too. NaN and infinity cannot be written in JSON; overflow to infinity is refused.
  double number(std::string_view name, double min, double max);
  std::string string(std::string_view name);
  bool boolean(std::string_view name);
  std::vector<int64_t> integers(std::string_view name, int64_t min, int64_t max, size_t max_count);
  JsonFields object(std::string_view name);

  // The member must be absent or have this value: for settings with only one supported value.
  void expect(std::string_view name, std::string_view value);
  void expect_boolean(std::string_view name, bool value);
  void expect_integer(std::string_view name, int64_t value);

  // Full paths of the members that no getter has asked for.
  std::vector<std::string> unread() const;
  void ignore(std::string_view name) { read_.emplace(name); }
  std::string path(std::string_view name) const { return what_ + ": " + prefix_ + std::string(name); }

 private:
  const json::object& object_;
  std::string what_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
};

// A short rendering of a value for messages.
std::string show(const json::value& value);

}  // namespace hadal
