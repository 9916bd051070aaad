#include "grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/error.h"

namespace hadal::grammar {

using text::Json;

namespace {

// Keywords that say nothing about which values are valid.
const std::set<std::string_view> kAnnotations = {"title",      "description", "default",  "examples", "example",
                                                 "$schema",    "$id",         "$defs",    "$comment", "definitions",
                                                 "deprecated", "readOnly",    "writeOnly"};

// Supported keywords, and the type of the values that they restrict.
const std::map<std::string_view, std::string_view> kAssertions = {
    {"type", ""},
    {"enum", ""},
    {"const", ""},
    {"$ref", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
};

// What to do about the others.
const std::map<std::string_view, std::string_view> kRemedies = {
    {"nullable", "write \"type\": [TYPE, \"null\"]"},
    {"not", "describe the values that are allowed"},
    {"if", "use \"anyOf\" with one branch for each case"},
    {"then", "use \"anyOf\" with one branch for each case"},
    {"else", "use \"anyOf\" with one branch for each case"},
    {"patternProperties", "list the names in \"properties\", or use \"additionalProperties\""},
    {"propertyNames", "list the names in \"properties\""},
    {"unevaluatedProperties", "use \"additionalProperties\""},
    {"unevaluatedItems", "use \"items\""},
    {"additionalItems", "use \"prefixItems\" and \"items\""},
    {"dependentRequired", "use \"anyOf\" with one branch for each case"},
    {"dependentSchemas", "use \"anyOf\" with one branch for each case"},
    {"dependencies", "use \"anyOf\" with one branch for each case"},
    {"contains", "use \"prefixItems\" or \"items\""},
    {"minContains", "use \"minItems\""},
    {"maxContains", "use \"maxItems\""},
    {"minProperties", "name the members in \"required\""},
    {"maxProperties", "name the members in \"properties\""},
    {"$dynamicRef", "use \"$ref\""},
    {"$recursiveRef", "use \"$ref\""},
    {"$anchor", "refer to the place as \"#/$defs/NAME\""},
    {"contentEncoding", "remove it, or use \"pattern\""},
    {"contentMediaType", "remove it"},
};

const std::map<std::string_view, std::string_view>& formats() {
  static const std::string date =
      R"([12]\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])))";
  static const std::string time = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
  static const std::string octet = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  static const std::string label = R"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)";
  static const std::string texts[] = {
      "^" + date + "$",
      "^" + time + "$",
      "^" + date + "T" + time + "$",
      "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
      "^(" + octet + R"(\.){3})" + octet + "$",
      R"(^[A-Za-z0-9_+-]{1,30}(\.[A-Za-z0-9_+-]{1,30})?@)" + label + R"((\.)" + label + "){1,3}$",
      "^" + label + R"((\.)" + label + "){0,3}$",
      "^https?://" + label + R"((\.)" + label + R"(){0,3}(:\d{1,4})?(/[A-Za-z0-9._~%&=?#:@!$'()*+,;/-]*)?$)",
  };
  static const std::map<std::string_view, std::string_view> map = {
      {"date", texts[0]}, {"time", texts[1]},  {"date-time", texts[2]}, {"uuid", texts[3]},
      {"ipv4", texts[4]}, {"email", texts[5]}, {"hostname", texts[6]},  {"uri", texts[7]}};
  return map;
}

}  // namespace

void refuse(const std::string& path, std::string_view keyword, std::string_view what) {
  fail(ErrorKind::invalid_argument, "schema at {}: \"{}\" {}", path, keyword, what);
}

void check_keywords(const Json& schema, const std::string& path) {
  if (!schema.as_object())
    fail(ErrorKind::invalid_argument, "schema at {}: a schema is an object or a boolean, not {}", path,
         type_name(schema));
  for (const auto& [keyword, value] : *schema.as_object()) {
    if (kAnnotations.count(keyword) || kAssertions.count(keyword)) continue;
    const auto remedy = kRemedies.find(keyword);
    refuse(path, keyword,
           fmt::format("is not supported; {}", remedy == kRemedies.end() ? "remove it" : remedy->second));
  }
}

void check_no_others(const Json& schema, const std::string& path, std::string_view keyword,
                     const std::set<std::string_view>& allowed) {
  for (const auto& [other, value] : *schema.as_object())
    if (!kAnnotations.count(other) && !allowed.count(other))
      refuse(
          path, other,
          fmt::format("beside \"{}\" is not supported; move it into the schemas that \"{}\" names", keyword, keyword));
}

bool has_assertions(const Json& schema) {
  const Json::Object& members = *schema.as_object();
  return std::any_of(members.begin(), members.end(),
                     [](const auto& m) { return m.first != "type" && kAssertions.count(m.first); });
}

std::set<std::string> types_of(const Json& schema, const std::string& path) {
  std::set<std::string> types;
  if (const Json* type = schema.find("type")) {
    const Json::Array names = type->as_array() ? *type->as_array() : Json::Array{*type};
    for (const Json& name : names) {
      if (!name.as_string() || std::find(kTypes.begin(), kTypes.end(), *name.as_string()) == kTypes.end())
        refuse(path, "type", fmt::format("is {}; there are {}", name.dump(), fmt::join(kTypes, ", ")));
      types.insert(*name.as_string());
    }
    if (types.empty()) refuse(path, "type", "is an empty list");
    return types;
  }
  for (const auto& [keyword, value] : *schema.as_object())
    if (const auto it = kAssertions.find(keyword); it != kAssertions.end() && !it->second.empty())
      types.emplace(it->second);
  if (types.empty()) types.insert(kTypes.begin(), kTypes.end());
  return types;
}

std::string type_name(const Json& value) {
  if (value.is_null()) return "null";
  if (value.as_bool()) return "boolean";
  if (value.as_string()) return "string";
  if (value.as_array()) return "array";
  if (value.as_object()) return "object";
  return value.as_number()->is_integer ? "integer" : "number";
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (const auto integer = value.as_integer()) return *integer;
  const Json::Number* number = value.as_number();
  if (!number) return std::nullopt;
  const double real = std::strtod(number->text.c_str(), nullptr);
  if (!(std::abs(real) < 9e18) || real != std::trunc(real)) return std::nullopt;
  return static_cast<std::int64_t>(real);
}

std::string percent_decoded(std::string_view text) {
  const auto hex = [&](std::size_t at) {
    const char c = static_cast<char>(text[at] | (text[at] > '9' ? 0x20 : 0));
    return std::string_view("0123456789abcdef").find(c);
  };
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(i + 1) < 16 && hex(i + 2) < 16) {
      bytes += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
      i += 2;
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

std::string pointer_step(std::string_view step) {
  std::string name;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1'))
      name += step[++i] == '0' ? '~' : '/';
    else
      name += step[i];
  }
  return name;
}

std::string pattern_of_format(const std::string& format, const std::string& path) {
  const auto it = formats().find(format);
  if (it != formats().end()) return std::string(it->second);
  std::string names;
  for (const auto& [name, pattern] : formats()) names += (names.empty() ? "" : ", ") + std::string(name);
  refuse(path, "format", fmt::format("\"{}\" is not supported; there are {}; or use \"pattern\"", format, names));
}

}  // namespace hadal::grammar
