// Random schemas: valid texts, made without the grammar, are taken however they are cut into tokens; what the grammar lets through is valid.
#include <functional>

#include "grammar/test_support.h"

namespace hadal::grammar {
namespace {

using text::Json;

const std::vector<std::string> kNames = {"a", "b", "ab", "name", "value", "id", "k1", "k2", "é 中", "x\"y\\z"};

Json number(int value) { return Json(value); }

// A schema of the supported kind. `refs`: how many definitions there are to refer to.
Json random_schema(Random& random, int depth, int refs) {
  Json::Object s;
  const auto deeper = [&] { return random_schema(random, depth - 1, refs); };
  if (chance(random, 0.1)) s.emplace_back("description", Json("about"));
  const int kind = below(random, depth > 0 ? 13 : 8);
  switch (kind) {
    case 0:
      s.emplace_back("type", Json("integer"));
      if (chance(random, 0.5)) {
        const int low = below(random, 2000) - 1000;
        s.emplace_back("minimum", number(low));
        if (chance(random, 0.7)) s.emplace_back("maximum", number(low + below(random, 500)));
      }
      break;
    case 1:
      s.emplace_back("type", Json("number"));
      if (chance(random, 0.4)) {
        const int low = below(random, 200) - 100;
        s.emplace_back(chance(random, 0.5) ? "minimum" : "exclusiveMinimum", number(low));
        if (chance(random, 0.7))
          s.emplace_back(chance(random, 0.5) ? "maximum" : "exclusiveMaximum", number(low + 1 + below(random, 50)));
      }
      break;
    case 2:
      s.emplace_back("type", Json("string"));
      if (chance(random, 0.5)) {
        const int low = below(random, 4);
        if (chance(random, 0.7)) s.emplace_back("minLength", number(low));
        if (chance(random, 0.7)) s.emplace_back("maxLength", number(low + below(random, 6)));
      }
      break;
    case 3: s.emplace_back("type", Json("boolean")); break;
    case 4: s.emplace_back("type", Json(Json::Array{"string", "null", "integer"})); break;
    case 5:
      s.emplace_back("enum", Json(Json::Array{"red", "re", number(5), Json(), Json(Json::Array{number(1), "x"}),
                                              Json(Json::Object{{"k", Json(true)}})}));
      break;
    case 6: s.emplace_back("const", Json("a\n\"b\" é")); break;
    case 7:
      if (refs > 0) s.emplace_back("$ref", Json(fmt::format("#/$defs/d{}", below(random, refs))));
      break;
    case 8:
    case 9: {
      if (chance(random, 0.8)) s.emplace_back("type", Json("object"));
      Json::Object properties;
      Json::Array required;
      for (const std::string& name : kNames)
        if (chance(random, 0.3)) {
          properties.emplace_back(name, deeper());
          if (chance(random, 0.5)) required.emplace_back(name);
        }
      const bool listed = !properties.empty() || chance(random, 0.5);
      if (listed) s.emplace_back("properties", Json(std::move(properties)));
      s.emplace_back("required", Json(std::move(required)));
      if (chance(random, 0.3))
        s.emplace_back("additionalProperties", Json(false));
      else if (chance(random, 0.3))
        s.emplace_back("additionalProperties", chance(random, 0.5) ? Json(true) : deeper());
      break;
    }
    case 10:
    case 11: {
      s.emplace_back("type", Json("array"));
      const bool prefix = chance(random, 0.3);
      const int low = below(random, 3);
      if (prefix) {
        Json::Array items;
        for (int i = 0; i < 2; ++i) items.push_back(deeper());
        s.emplace_back("prefixItems", Json(std::move(items)));
      }
      if (chance(random, 0.8)) s.emplace_back("items", deeper());
      if (chance(random, 0.4)) s.emplace_back("minItems", number(low));
      if (chance(random, 0.4)) s.emplace_back("maxItems", number(low + below(random, 3)));
      break;
    }
    default: {
      Json::Array branches;
      for (int i = 0; i < 2 + below(random, 2); ++i) branches.push_back(deeper());
      s.emplace_back(chance(random, 0.7) ? "anyOf" : "oneOf", Json(std::move(branches)));
    }
  }
  return Json(std::move(s));
}

// Definitions refer to later ones only, except behind an optional member, so that every value can end.
Json random_document(Random& random) {
  Json::Object definitions;
  for (int i = 0; i < 3; ++i) {
    Json tree(Json::Object{
        {"type", Json("object")},
        {"properties",
         Json(Json::Object{{"v", random_schema(random, 1, 0)},
                           {"next", Json(Json::Object{{"$ref", Json(fmt::format("#/$defs/d{}", (i + 1) % 3))}})}})},
        {"required", Json(Json::Array{Json("v")})},
        {"additionalProperties", Json(false)}});
    definitions.emplace_back(fmt::format("d{}", i), i == 2 ? random_schema(random, 1, 0) : std::move(tree));
  }
  Json schema = random_schema(random, 3, 3);
  if (schema.find("$ref"))
    return Json(Json::Object{{"type", "array"}, {"items", schema}, {"$defs", Json(std::move(definitions))}});
  schema.as_object()->emplace_back("$defs", Json(std::move(definitions)));
  return schema;
}

// Writes valid values of a schema in the layout that schema.h describes.
class Instances {
 public:
  Instances(Random& random, const Json& root) : random_(random), root_(root) {}

  std::string value(const Json& s, int depth = 0) {
    if (s.as_bool()) return any(depth);
    if (const Json* reference = s.find("$ref"))
      return value(*root_.find("$defs")->find(reference->as_string()->substr(8)), depth);
    for (const char* keyword : {"anyOf", "oneOf"})
      if (const Json* branches = s.find(keyword)) return value(pick(random_, *branches->as_array()), depth);
    if (const Json* values = s.find("enum")) return literal(pick(random_, *values->as_array()));
    if (const Json* constant = s.find("const")) return literal(*constant);
    std::string type;
    if (const Json* t = s.find("type"))
      type = t->as_string() ? *t->as_string() : *pick(random_, *t->as_array()).as_string();
    else if (s.find("properties") || s.find("required") || s.find("additionalProperties"))
      type = "object";
    else
      return any(depth);
    if (type == "null") return "null";
    if (type == "boolean") return chance(random_, 0.5) ? "true" : "false";
    if (type == "integer") return std::to_string(integer(s, 0));
    if (type == "number") return real(s);
    if (type == "string") return string(at(s, "minLength", 0), at(s, "maxLength", at(s, "minLength", 0) + 6));
    return type == "array" ? array(s, depth) : object(s, depth);
  }

 private:
  static int at(const Json& s, const char* key, int otherwise) {
    return s.find(key) ? static_cast<int>(*s.find(key)->as_integer()) : otherwise;
  }

  static std::string comma(std::size_t i) { return i ? "," : ""; }
  std::string layout() {
    const int kind = below(random_, 4);
    if (kind < 2) return "";
    return kind == 2 ? " " : std::string(1, '\n').append(static_cast<std::size_t>(below(random_, 33)), ' ');
  }

  int integer(const Json& s, int margin) {
    const int low = at(s, "minimum", at(s, "exclusiveMinimum", -99999 - margin) + margin);
    const int high = at(s, "maximum", at(s, "exclusiveMaximum", low + 1000 + margin) - margin);
    return low + below(random_, high - low + 1);
  }

  std::string real(const Json& s) {
    if (!s.find("minimum") && !s.find("exclusiveMinimum"))
      return pick(random_, std::vector<std::string>{"0", "-0.5", "1e5", "3.25E-07", "12.0", "-7e+1"});
    // Between two neighbours, which no bound separates.
    const int low = at(s, "minimum", at(s, "exclusiveMinimum", 0));
    const int high = at(s, "maximum", at(s, "exclusiveMaximum", low + 5));
    if (low == high) return std::to_string(low);
    const int whole = low + below(random_, high - low);
    return whole >= 0 ? fmt::format("{}.25", whole) : whole == -1 ? "-0.5" : fmt::format("{}.75", whole + 1);
  }

  std::string string(int low, int high) {
    const int size = low + below(random_, high - low + 1);
    std::string out = "\"";
    for (int i = 0; i < size; ++i)
      out += pick(random_, std::vector<std::string>{"a",    "Z",    "7",   " ",       "{",       "]",
                                                    ":",    ",",    "é",   "中",      "😀",       "\\n",
                                                    "\\\"", "\\\\", "\\/", "\\u0041", "\\u00E9", "\\uD83D\\uDE00",
                                                    "\x7f", "<"});
    return out + '"';
  }

  std::string literal(const Json& value) {
    const Json::Array* items = value.as_array();
    const Json::Object* members = value.as_object();
    if (!items && !members) return value.dump();
    std::string out = items ? "[" : "{";
    const std::size_t size = items ? items->size() : members->size();
    for (std::size_t i = 0; i < size; ++i) {
      out += comma(i) + layout();
      if (members) out += Json((*members)[i].first).dump() + (chance(random_, 0.5) ? ": " : ":");
      out += literal(items ? (*items)[i] : (*members)[i].second);
    }
    return out + (size ? layout() : "") + (items ? "]" : "}");
  }

  std::string any(int depth) {
    switch (below(random_, depth > 4 ? 4 : 6)) {
      case 0: return "null";
      case 1: return real(Json(Json::Object{}));
      case 2: return string(0, 4);
      case 3: return std::to_string(below(random_, 10000));
      case 4: return array(Json(Json::Object{}), depth);
      default: return object(Json(Json::Object{}), depth);
    }
  }

  std::string array(const Json& s, int depth) {
    const int low = at(s, "minItems", 0), high = at(s, "maxItems", depth > 4 ? low : low + 2);
    const int size = low + below(random_, high - low + 1);
    std::string out = "[";
    for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
      const Json* prefix = s.find("prefixItems");
      const Json* items = s.find("items");
      out += comma(i) + layout();
      if (prefix && i < prefix->as_array()->size())
        out += value((*prefix->as_array())[i], depth + 1);
      else
        out += items ? value(*items, depth + 1) : any(depth + 1);
    }
    return out + (size ? layout() : "") + "]";
  }

  std::string object(const Json& s, int depth) {
    const Json* properties = s.find("properties");
    const Json* others = s.find("additionalProperties");
    std::vector<std::pair<std::string, std::string>> members;
    if (properties)
      for (const auto& [name, schema] : *properties->as_object()) {
        bool needed = chance(random_, depth > 4 ? 0.1 : 0.6);
        if (const Json* required = s.find("required"))
          for (const Json& r : *required->as_array()) needed |= *r.as_string() == name;
        if (needed) members.emplace_back(name, value(schema, depth + 1));
      }
    if (others ? !(others->as_bool() && !*others->as_bool()) : !properties)
      for (int i = 0; i < below(random_, 4); ++i)
        members.emplace_back(fmt::format("extra {}é", i), others ? value(*others, depth + 1) : any(depth + 1));
    std::string out = "{";
    for (std::size_t i = 0; i < members.size(); ++i)
      out +=
          comma(i) + layout() + Json(members[i].first).dump() + (chance(random_, 0.5) ? ": " : ":") + members[i].second;
    return out + (members.empty() ? "" : layout()) + "}";
  }

  Random& random_;
  const Json& root_;
};

class RandomSchemas : public ::testing::TestWithParam<int> {};

TEST_P(RandomSchemas, TakesEveryValidTextInAnyTokens) {
  Grammars grammars(small_vocabulary());
  for (unsigned seed = 0; seed < 60; ++seed) {
    Random random(seed * 8 + static_cast<unsigned>(GetParam()));
    const Json schema = random_document(random);
    SCOPED_TRACE(schema.dump());
    const auto constraint = grammars.json_schema(schema);
    Instances instances(random, schema);
    for (int i = 0; i < 15; ++i) {
      const std::string text = instances.value(schema);
      ASSERT_TRUE(is_valid(schema, schema, Json::parse(text))) << text;  // the test itself
      ASSERT_TRUE(takes(*constraint, text)) << text;
      for (int cut = 0; cut < 4; ++cut) {
        const std::vector<std::int32_t> tokens = cut_at_random(random, text);
        ASSERT_TRUE(takes(*constraint, tokens)) << text;
      }
      // A text cut short is not complete.
      const std::string half = text.substr(0, static_cast<std::size_t>(below(random, static_cast<int>(text.size()))));
      ASSERT_TRUE(begins(*constraint, half)) << half;
      if (!Json::try_parse(half)) { ASSERT_FALSE(takes(*constraint, half)) << half; }
    }
  }
}

TEST_P(RandomSchemas, LetsOnlyValidTextsThrough) {
  Grammars grammars(small_vocabulary());
  for (unsigned seed = 0; seed < 60; ++seed) {
    Random random(seed * 8 + static_cast<unsigned>(GetParam()) + 10'000);
    const Json schema = random_document(random);
    SCOPED_TRACE(schema.dump());
    const auto constraint = grammars.json_schema(schema);
    for (int i = 0; i < 4; ++i) {
      const std::string text =
          text_of(random_walk(random, *constraint, 10 + below(random, 60), i == 0 && seed % 4 == 0));
      const auto value = Json::try_parse(text);
      ASSERT_TRUE(value) << text;
      ASSERT_TRUE(is_valid(schema, schema, *value)) << text;
      ASSERT_FALSE(repeats_a_name(text)) << text;
    }
  }
}

// Puts something else in the place of a random part.
void mutate(Random& random, Json& at) {
  static const std::vector<std::string> things = {"null",
                                                  "true",
                                                  "-1",
                                                  "1e400",
                                                  "\"x\"",
                                                  "[]",
                                                  "{}",
                                                  "[{}]",
                                                  "\"#\"",
                                                  "\"#/$defs/d0\"",
                                                  "NaN",
                                                  "99999999999999999999",
                                                  "\"(a|b)*$\"",
                                                  "0.5",
                                                  "{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}",
                                                  "[\"a\", 1]",
                                                  "\"string\"",
                                                  "{\"not\": {}}",
                                                  "60000"};
  static const std::vector<std::string> keywords = {"type",
                                                    "enum",
                                                    "const",
                                                    "$ref",
                                                    "anyOf",
                                                    "allOf",
                                                    "properties",
                                                    "required",
                                                    "additionalProperties",
                                                    "items",
                                                    "prefixItems",
                                                    "minItems",
                                                    "maxItems",
                                                    "minLength",
                                                    "maxLength",
                                                    "pattern",
                                                    "format",
                                                    "minimum",
                                                    "exclusiveMaximum",
                                                    "multipleOf",
                                                    "uniqueItems",
                                                    "if",
                                                    "unknown",
                                                    "$defs"};
  if (Json::Object* members = at.as_object(); members && chance(random, 0.85)) {
    if (members->empty() || chance(random, 0.2))
      members->emplace_back(pick(random, keywords), Json::parse(pick(random, things)));
    else
      mutate(random, (*members)[static_cast<std::size_t>(below(random, static_cast<int>(members->size())))].second);
  } else if (Json::Array* items = at.as_array(); items && !items->empty() && chance(random, 0.85)) {
    mutate(random, (*items)[static_cast<std::size_t>(below(random, static_cast<int>(items->size())))]);
  } else {
    at = Json::parse(pick(random, things));
  }
}

TEST_P(RandomSchemas, DamagedOnesAreRefusedOrWork) {
  Grammars grammars(small_vocabulary());
  int refused = 0, taken = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    Random random(seed * 8 + static_cast<unsigned>(GetParam()) + 20'000);
    Json schema = random_document(random);
    for (int i = 0; i <= below(random, 3); ++i) mutate(random, schema);
    SCOPED_TRACE(schema.dump());
    try {
      const auto constraint = grammars.json_schema(schema);
      ++taken;
      const std::string text = text_of(random_walk(random, *constraint, 20, false));
      ASSERT_TRUE(Json::try_parse(text)) << text;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(taken, 50);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSchemas, ::testing::Range(0, 8));

}  // namespace
}  // namespace hadal::grammar
