#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <set>

#include "grammar/test_support.h"
#include "text/unicode.h"

namespace hadal::grammar {

using text::Json;

const std::vector<std::string>& small_vocabulary_bytes() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> bytes(kFirstByte);
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    for (const char* token : {"{\"",
                              "\":",
                              "\": ",
                              "\",",
                              "\", ",
                              "\"}",
                              "\"]",
                              "]}",
                              "}}",
                              "}]",
                              "[[",
                              "[{",
                              "{}",
                              "[]",
                              "\"\"",
                              ", \"",
                              ",\"",
                              " \"",
                              "\n  ",
                              "\n    ",
                              "{\n  \"",
                              ",\n",
                              "\n}",
                              "\":\"",
                              "\",\"",
                              "\": {",
                              "\": [",
                              "\\n",
                              "\\\"",
                              "\\u",
                              "\\u00",
                              "\\ud83d",
                              "\\\\",
                              "true",
                              "false",
                              "null",
                              "tr",
                              "ue",
                              "alse",
                              "12",
                              "00",
                              "007",
                              "3.",
                              "1e",
                              "-1",
                              ".5",
                              "e+",
                              "name",
                              "na",
                              "me",
                              "value",
                              "al",
                              "item",
                              "items",
                              "id",
                              "the ",
                              " text",
                              "ab",
                              "abc",
                              "bc",
                              "aa",
                              "xyz",
                              "\xE4\xB8",
                              "\xAD",
                              "\xE6\x96",
                              "中",
                              "文字",
                              "é",
                              "\xC3",
                              "\xA9x",
                              "😀",
                              "\xF0\x9F",
                              "\x98\x80",
                              "\xF0\x9F\x98",
                              "a\"",
                              "x\":",
                              "\"a",
                              "\"a\":",
                              "\"a\":1,\"b\":",
                              " string=\"",
                              "string",
                              "true\">",
                              "false\">",
                              " invoke",
                              " calls",
                              ">\n",
                              "</",
                              "\n</",
                              "\n\n<",
                              "<",
                              " parameter",
                              "get",
                              "\">\n",
                              "e\"",
                              "2020-",
                              "-0",
                              "k1",
                              "k2",
                              "\"k1\":",
                              "\":true",
                              "\":\"\",\"",
                              "0,",
                              "1]",
                              "1}",
                              "\"z\":{\"z\":",
                              "  ",
                              "\n\n"})
      bytes.emplace_back(token);
    bytes.emplace_back("ab");  // two tokens with the same bytes
    return bytes;
  }();
  return all;
}

std::shared_ptr<const Vocabulary> small_vocabulary() {
  static const auto vocabulary = std::make_shared<const Vocabulary>(
      small_vocabulary_bytes(), Vocabulary::Controls{kEosToken, kDsmlToken, kEndThinkingToken});
  return vocabulary;
}

std::vector<std::int32_t> cut_at_random(Random& random, std::string_view text, bool markup) {
  const auto& all = small_vocabulary_bytes();
  std::vector<std::int32_t> tokens;
  while (!text.empty()) {
    std::vector<std::int32_t> fits;
    for (std::size_t t = kFirstByte; t < all.size(); ++t)
      if (text.starts_with(all[t]) && std::count(all[t].begin(), all[t].end(), '"') < 3)
        fits.push_back(static_cast<std::int32_t>(t));
    std::int32_t token = pick(random, fits);
    text.remove_prefix(all[static_cast<std::size_t>(token)].size());
    if (markup && token == kFirstByte + 1) token = kDsmlToken;
    tokens.push_back(token);
  }
  return tokens;
}

std::vector<std::int32_t> as_bytes(std::string_view text, bool markup) {
  std::vector<std::int32_t> tokens;
  for (const char c : text)
    tokens.push_back(markup && c == '\x01' ? kDsmlToken : kFirstByte + static_cast<unsigned char>(c));
  return tokens;
}

bool begins(const Constraint& initial, const std::vector<std::int32_t>& tokens) {
  const auto state = initial.clone();
  return std::all_of(tokens.begin(), tokens.end(), [&](std::int32_t token) { return state->accept(token); });
}

bool takes(const Constraint& initial, const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> all = tokens;
  all.push_back(kEosToken);
  return begins(initial, all);
}

std::vector<std::int32_t> allowed_tokens(const Constraint& constraint) {
  const std::size_t size = small_vocabulary_bytes().size();
  std::vector<std::uint64_t> mask((size + 63) / 64 + 1, ~std::uint64_t{0});  // a word more than needed
  constraint.allowed(mask);
  std::vector<std::int32_t> tokens;
  for (std::size_t t = 0; t < mask.size() * 64; ++t)
    if (mask[t / 64] >> (t % 64) & 1) {
      EXPECT_LT(t, size);
      tokens.push_back(static_cast<std::int32_t>(t));
    }
  return tokens;
}

void expect_consistent(const Constraint& constraint) {
  const std::vector<std::int32_t> allowed = allowed_tokens(constraint);
  EXPECT_FALSE(allowed.empty());
  for (std::int32_t t = -1; t <= static_cast<std::int32_t>(small_vocabulary_bytes().size()); ++t)
    ASSERT_EQ(constraint.clone()->accept(t), std::binary_search(allowed.begin(), allowed.end(), t))
        << "token " << t << " " << (t >= 0 && t < 400 ? text_of({t}) : "");
}

std::string text_of(const std::vector<std::int32_t>& tokens) {
  std::string text;
  for (const std::int32_t token : tokens)
    text += token == kDsmlToken ? "\x01" : small_vocabulary_bytes()[static_cast<std::size_t>(token)];
  return text;
}

std::vector<std::int32_t> random_walk(Random& random, const Constraint& initial, int steps, bool check_consistency) {
  static const std::string closing = "\"}]>\n/0aetk:,";
  const auto state = initial.clone();
  std::vector<std::int32_t> tokens;
  for (int step = 0; step < steps + 3000; ++step) {
    if (check_consistency) expect_consistent(*state);
    const std::vector<std::int32_t> allowed = allowed_tokens(*state);
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing is allowed after " << text_of(tokens);
      return tokens;
    }
    std::int32_t token = pick(random, allowed);
    // Half of the time a single character, of which there are more kinds than a random choice would show.
    if (chance(random, 0.5)) {
      std::vector<std::int32_t> some;
      for (const std::int32_t t : allowed)
        if (t < kFirstByte || (t >= kFirstByte + 0x20 && t < kFirstByte + 0x7F)) some.push_back(t);
      if (!some.empty()) token = pick(random, some);
    }
    if (step >= steps) {
      const auto can = [&](std::int32_t t) { return std::binary_search(allowed.begin(), allowed.end(), t); };
      const bool tag = !tokens.empty() && tokens.back() == kFirstByte + '<';
      if (can(kEosToken)) {
        token = kEosToken;
      } else if (tag && can(kFirstByte + '/') && chance(random, 0.9)) {
        token = kFirstByte + '/';
      } else if (can(kDsmlToken)) {
        token = kDsmlToken;
      } else if (chance(random, 0.5) && can(kFirstByte + '<')) {
        token = kFirstByte + '<';
      } else {
        for (auto c = closing.rbegin(); c != closing.rend(); ++c)
          if (can(kFirstByte + *c) && chance(random, 0.9)) token = kFirstByte + *c;
      }
    }
    EXPECT_TRUE(state->accept(token));
    if (token == kEosToken) {
      EXPECT_EQ(allowed_tokens(*state), std::vector<std::int32_t>{kEosToken});
      return tokens;
    }
    tokens.push_back(token);
  }
  ADD_FAILURE() << "the walk does not end: " << text_of(tokens).substr(0, 2000);
  return tokens;
}

namespace {

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool same(const Json& a, const Json& b) { return a.dump() == b.dump(); }

bool has_type(const std::string& type, const Json& value) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.as_bool() != nullptr;
  if (type == "string") return value.as_string() != nullptr;
  if (type == "array") return value.as_array() != nullptr;
  if (type == "object") return value.as_object() != nullptr;
  if (type == "number") return value.as_number() != nullptr;
  return value.as_number() != nullptr && value.as_number()->is_integer;
}

double real(const Json& value) { return std::strtod(value.as_number()->text.c_str(), nullptr); }

}  // namespace

bool is_valid(const Json& schema, const Json& root, const Json& value) {
  if (const bool* all = schema.as_bool()) return *all;
  const auto number_at = [&](const char* key, double otherwise) {
    return schema.find(key) ? real(*schema.find(key)) : otherwise;
  };
  if (const Json* reference = schema.find("$ref")) {
    const std::string& text = *reference->as_string();
    return is_valid(text == "#" ? root : *root.find("$defs")->find(text.substr(8)), root, value);
  }
  for (const char* keyword : {"anyOf", "oneOf"})
    if (const Json* branches = schema.find(keyword))
      if (std::none_of(branches->as_array()->begin(), branches->as_array()->end(),
                       [&](const Json& branch) { return is_valid(branch, root, value); }))
        return false;
  if (const Json* type = schema.find("type")) {
    const Json::Array names = type->as_array() ? *type->as_array() : Json::Array{*type};
    if (std::none_of(names.begin(), names.end(), [&](const Json& name) { return has_type(*name.as_string(), value); }))
      return false;
  }
  if (const Json* constant = schema.find("const"); constant && !same(*constant, value)) return false;
  if (const Json* values = schema.find("enum"))
    if (std::none_of(values->as_array()->begin(), values->as_array()->end(),
                     [&](const Json& v) { return same(v, value); }))
      return false;
  if (value.as_number()) {
    const double x = real(value);
    if (std::isinf(x) || x < number_at("minimum", -INFINITY) || x > number_at("maximum", INFINITY) ||
        x <= number_at("exclusiveMinimum", -INFINITY) || x >= number_at("exclusiveMaximum", INFINITY))
      return false;
  }
  if (const std::string* text = value.as_string()) {
    const auto length = static_cast<double>(characters(*text));
    if (length < number_at("minLength", 0) || length > number_at("maxLength", INFINITY)) return false;
    if (const Json* pattern = schema.find("pattern"))
      if (!std::regex_search(*text, std::regex(*pattern->as_string()))) return false;
  }
  if (const Json::Array* items = value.as_array()) {
    const auto size = static_cast<double>(items->size());
    if (size < number_at("minItems", 0) || size > number_at("maxItems", INFINITY)) return false;
    const Json* prefix = schema.find("prefixItems");
    const Json* rest = schema.find("items");
    for (std::size_t i = 0; i < items->size(); ++i) {
      const bool fixed = prefix && i < prefix->as_array()->size();
      const Json* of = fixed ? &(*prefix->as_array())[i] : rest;
      if (of && !is_valid(*of, root, (*items)[i])) return false;
    }
  }
  if (const Json::Object* members = value.as_object()) {
    const Json* properties = schema.find("properties");
    const Json* others = schema.find("additionalProperties");
    if (const Json* required = schema.find("required"))
      for (const Json& name : *required->as_array())
        if (!value.find(*name.as_string())) return false;
    for (const auto& [name, member] : *members) {
      const Json* of = properties ? properties->find(name) : nullptr;
      if (!of) of = others;
      if (of && !is_valid(*of, root, member)) return false;
    }
  }
  return true;
}

bool repeats_a_name(std::string_view json) {
  std::vector<std::set<std::string_view>> open;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '{' || json[i] == '[') open.emplace_back();
    if (json[i] == '}' || json[i] == ']') open.pop_back();
    if (json[i] != '"') continue;
    std::size_t end = i + 1;
    while (json[end] != '"') end += json[end] == '\\' ? 2 : 1;
    if (end + 1 < json.size() && json[end + 1] == ':' && !open.back().insert(json.substr(i, end - i)).second)
      return true;
    i = end;
  }
  return false;
}

}  // namespace hadal::grammar
