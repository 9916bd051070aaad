#include "checkpoint/json.h"

#include <boost/json/basic_parser_impl.hpp>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <system_error>
#include <unordered_set>

namespace hadal {
namespace {

constexpr size_t max_depth = 32;

json::parse_options options() {
  json::parse_options o;
  o.max_depth = max_depth;
  return o;
}

// The DOM of Boost.JSON keeps the last of several equal keys, so duplicates are looked for in the event
// stream.
struct DuplicateFinder {
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_key_size = size_t{1} << 16;
  static constexpr size_t max_string_size = std::numeric_limits<size_t>::max();
  using error_code = json::error_code;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    objects.emplace_back();
    return true;
  }
  bool on_object_end(size_t, error_code&) {
    objects.pop_back();
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(size_t, error_code&) { return true; }
  bool on_key_part(json::string_view part, size_t, error_code&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t, error_code&) {
    key.append(part.data(), part.size());
    if (!objects.back().insert(key).second && duplicate.empty()) duplicate = key.empty() ? "(empty)" : key;
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view, size_t, error_code&) { return true; }
  bool on_string(json::string_view, size_t, error_code&) { return true; }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(int64_t, json::string_view, error_code&) { return true; }
  bool on_uint64(uint64_t, json::string_view, error_code&) { return true; }
  bool on_double(double, json::string_view, error_code&) { return true; }
  bool on_bool(bool, error_code&) { return true; }
  bool on_null(error_code&) { return true; }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

  std::vector<std::unordered_set<std::string>> objects;
  std::string key;
  std::string duplicate;
};

}  // namespace

std::string show(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

json::value parse_json(std::string_view text, std::string_view what) {
  json::basic_parser<DuplicateFinder> parser(options());
  json::error_code error;
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (error) fail(ErrorKind::invalid_data, "{}: not valid JSON at byte {}: {}", what, used, error.message());
  // Only white space may follow the value, and the parser has consumed that.
  if (used != text.size())
    fail(ErrorKind::invalid_data, "{}: not valid JSON at byte {}: text after the end of the value", what, used);
  if (const std::string& name = parser.handler().duplicate; !name.empty())
    fail(ErrorKind::invalid_data, "{}: the name \"{}\" appears twice in one object", what, name);
  json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options());
  if (error) fail(ErrorKind::invalid_data, "{}: not valid JSON: {}", what, error.message());
  return value;
}

std::string read_text_file(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    fail(ErrorKind::io, "cannot read {}: it is a directory", path.string());
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorKind::io, "cannot open {}: {}", path.string(), std::generic_category().message(errno));
  std::string text;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) {
    text.append(buffer, size_t(in.gcount()));
    if (text.size() > max_bytes)
      fail(ErrorKind::invalid_data, "{} is larger than the limit of {} bytes", path.string(), max_bytes);
  }
  if (in.bad()) fail(ErrorKind::io, "cannot read {}: {}", path.string(), std::generic_category().message(errno));
  return text;
}

JsonFields::JsonFields(const json::value& value, std::string what, std::string prefix)
    : object_([&]() -> const json::object& {
        if (const json::object* object = value.if_object()) return *object;
        const std::string name = prefix.empty() ? "the top level" : prefix.substr(0, prefix.size() - 1);
        fail(ErrorKind::invalid_data, "{}: {} is {}, expected an object", what, name, show(value));
      }()),
      what_(std::move(what)),
      prefix_(std::move(prefix)) {}

bool JsonFields::has(std::string_view name) const { return object_.contains({name.data(), name.size()}); }

const json::value& JsonFields::get(std::string_view name) {
  read_.emplace(name);
  const json::value* value = object_.if_contains({name.data(), name.size()});
  if (!value) fail(ErrorKind::invalid_data, "{} is missing", path(name));
  return *value;
}

namespace {

int64_t to_integer(const json::value& value, const std::string& path, int64_t min, int64_t max) {
  int64_t result = 0;
  const double* real = value.if_double();
  if (const int64_t* i = value.if_int64()) {
    result = *i;
  } else if (real && std::abs(*real) < 9e15 && std::trunc(*real) == *real) {
    result = int64_t(*real);  // 10000.0 where 10000 is meant
  } else if (!value.is_uint64()) {
    fail(ErrorKind::invalid_data, "{} is {}, expected an integer", path, show(value));
  }
  if (value.is_uint64() || result < min || result > max)
    fail(ErrorKind::invalid_data, "{} is {}, expected {} to {}", path, show(value), min, max);
  return result;
}

}  // namespace

int64_t JsonFields::integer(std::string_view name, int64_t min, int64_t max) {
  return to_integer(get(name), path(name), min, max);
}

double JsonFields::number(std::string_view name, double min, double max) {
  const json::value& value = get(name);
  if (!value.is_number()) fail(ErrorKind::invalid_data, "{} is {}, expected a number", path(name), show(value));
  const double result = value.is_double()  ? value.get_double()
                        : value.is_int64() ? double(value.get_int64())
                                           : double(value.get_uint64());
  if (!(result >= min && result <= max))
    fail(ErrorKind::invalid_data, "{} is {}, expected {} to {}", path(name), show(value), min, max);
  return result;
}

std::string JsonFields::string(std::string_view name) {
  const json::value& value = get(name);
  if (!value.is_string()) fail(ErrorKind::invalid_data, "{} is {}, expected a string", path(name), show(value));
  return std::string(value.get_string().data(), value.get_string().size());
}

bool JsonFields::boolean(std::string_view name) {
  const json::value& value = get(name);
  if (!value.is_bool()) fail(ErrorKind::invalid_data, "{} is {}, expected true or false", path(name), show(value));
  return value.get_bool();
}

std::vector<int64_t> JsonFields::integers(std::string_view name, int64_t min, int64_t max, size_t max_count) {
  const json::value& value = get(name);
  const json::array* array = value.if_array();
  if (!array) fail(ErrorKind::invalid_data, "{} is {}, expected an array of integers", path(name), show(value));
  if (array->size() > max_count)
    fail(ErrorKind::invalid_data, "{} has {} entries, expected at most {}", path(name), array->size(), max_count);
  std::vector<int64_t> result;
  for (size_t i = 0; i < array->size(); ++i)
    result.push_back(to_integer((*array)[i], fmt::format("{}[{}]", path(name), i), min, max));
  return result;
}

JsonFields JsonFields::object(std::string_view name) {
  return JsonFields(get(name), what_, prefix_ + std::string(name) + ".");
}

void JsonFields::expect(std::string_view name, std::string_view value) {
  if (!has(name)) return ignore(name);
  if (const std::string have = string(name); have != value)
    fail(ErrorKind::invalid_data, "{} is \"{}\", and only \"{}\" is supported", path(name), have, value);
}

void JsonFields::expect_boolean(std::string_view name, bool value) {
  if (!has(name)) return ignore(name);
  if (boolean(name) != value)
    fail(ErrorKind::invalid_data, "{} is {}, and only {} is supported", path(name), !value, value);
}

void JsonFields::expect_integer(std::string_view name, int64_t value) {
  if (!has(name)) return ignore(name);
  constexpr int64_t limit = std::numeric_limits<int64_t>::max();
  if (const int64_t have = integer(name, -limit, limit); have != value)
    fail(ErrorKind::invalid_data, "{} is {}, and only {} is supported", path(name), have, value);
}

std::vector<std::string> JsonFields::unread() const {
  std::vector<std::string> names;
  for (const auto& member : object_)
    if (const std::string name(member.key().data(), member.key().size()); !read_.contains(name))
      names.push_back(prefix_ + name);
  return names;
}

}  // namespace hadal
