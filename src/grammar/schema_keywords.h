// The vocabulary of JSON Schema: which keywords there are, and what to say about those that cannot be enforced.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "text/json.h"

namespace hadal::grammar {

inline const std::array<std::string, 7> kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};

// Throws Error(invalid_argument): schema at PATH: "KEYWORD" WHAT.
[[noreturn]] void refuse(const std::string& path, std::string_view keyword, std::string_view what);

// Throws when the schema is no object, or has a keyword that is not supported.
void check_keywords(const text::Json& schema, const std::string& path);
// Throws when the schema has a keyword beside `keyword` that restricts values and is not in `allowed`.
void check_no_others(const text::Json& schema, const std::string& path, std::string_view keyword,
                     const std::set<std::string_view>& allowed);
bool has_assertions(const text::Json& schema);  // any keyword that restricts values

// Types that `type` names, or that the other keywords speak of, or all.
std::set<std::string> types_of(const text::Json& schema, const std::string& path);
std::string type_name(const text::Json& value);  // a whole number is an integer

// The value of an integer, or of a number such as 2.0 or 1e3 that is one.
std::optional<std::int64_t> whole_number(const text::Json& value);

// Text of a URI without its escapes, and a step of a JSON pointer without its own.
std::string percent_decoded(std::string_view text);
std::string pointer_step(std::string_view step);

std::string pattern_of_format(const std::string& format, const std::string& path);

}  // namespace hadal::grammar
