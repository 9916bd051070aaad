// Single keywords: what they take and refuse.
#include "grammar/schema.h"

#include <algorithm>

#include "grammar/test_support.h"

namespace hadal::grammar {
namespace {

std::shared_ptr<const Constraint> schema(std::string_view text) {
  static Grammars grammars(small_vocabulary());
  return grammars.json_schema_text(text);
}

struct Case {
  const char* schema;
  std::vector<const char*> good, bad;
};

TEST(Schema, Keywords) {
  const std::vector<Case> cases = {
      {R"({"type": "null"})", {"null"}, {"", "nul", "nulll", " null", "null ", "\"null\""}},
      {R"({"type": "boolean"})", {"true", "false"}, {"True", "0", "\"true\""}},
      {R"({"type": "integer"})",
       {"0", "7", "-1", "10", "999999999999999999", "-999999999999999999"},
       {"-0", "01", "00", "1.0", "1e3", "+1", "-", "1000000000000000000", ".5", "0x1", "--1", ""}},
      {R"({"type": "number"})",
       {"0", "-0", "-0.0", "0.5", "1e3", "1E-3", "1.25e+07", "10.00", "123456789012345678.12345678901234567890"},
       {"01", "1.", ".5", "1e", "1e+", "1e100", "+1", "NaN", "Infinity", "-Infinity", "1.123456789012345678901",
        "1.5.5", "--1"}},
      {R"({"type": "string"})",
       {R"("")", R"("a b")", R"("\n\t\"\\\/\b\f\r")", R"("\u00e9\uD83D\uDE00")", "\"中文😀\x7f\"", R"("\u0000")"},
       {R"(")", "a", R"("\x")", R"("\u12")", R"("\uD83D")", R"("\uD83Dx")", R"("\uDE00")", R"("\uD83D\u0041")",
        "\"\n\"", "\"\x01\"", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe4\xb8\"",
        R"("a"b)", "'a'"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("中文字")", R"("\n\u0041")", R"("😀\uD83D\uDE00x")"},
       {R"("a")", R"("abcd")", R"("")", R"("中")", R"("\uD83D\uDE00")"}},
      {R"({"type": "string", "minLength": 2})", {R"("ab")", R"("abcdefgh")"}, {R"("a")", R"("")"}},
      {R"({"type": "string", "maxLength": 0})", {R"("")"}, {R"("a")"}},
      {R"({"type": ["string", "null"]})", {R"("x")", "null"}, {"1", "true"}},
      {R"({"type": ["integer", "number"]})", {"1", "1.5"}, {"null"}},
      {R"({"const": {"a": [1, "é\n"]}})",
       {"{\"a\":[1,\"é\\n\"]}", "{\"a\": [1, \"é\\n\"]}", "{\n  \"a\": [\n    1,\n    \"é\\n\"\n  ]\n}"},
       {"{\"a\":[1]}", "{ }", "{\"a\":[1,\"\\u00e9\\n\"]}"}},
      {R"({"enum": ["a", "ab", 1, null, [], {}, 1.5]})",
       {R"("a")", R"("ab")", "1", "null", "[]", "{}", "1.5"},
       {R"("b")", R"("abc")", "2", "1.0", "[ ]", "15"}},
      {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
      {R"({"type": "number", "enum": ["a", 1]})", {"1"}, {R"("a")"}},
      {R"({"type": "array", "items": {"type": "integer"}})",
       {"[]", "[1]", "[1,2,3]", "[1, 2]", "[\n  1,\n  2\n]", "[ 1, 2 ]"},
       {"[1,]", "[,1]", "[1 2]", "[1 ,2]", "[  1]", "[1,\t2]", "[ ]", "[\n]", "[\"a\"]", "[1", "[\n\n1]"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
       {"[1,2]", "[1,2,3]"},
       {"[]", "[1]", "[1,2,3,4]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]", "[ ]"}},
      {R"({"type": "array", "minItems": 1, "items": {"const": 1}})", {"[1]", "[1,1,1,1,1]"}, {"[]", "[2]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": "a"}], "items": false})",
       {"[]", "[1]", "[1,\"a\"]"},
       {"[1,\"a\",2]", "[\"a\"]"}},
      {R"({"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3})",
       {"[1,2,2]", "[1,2,2,2]"},
       {"[1,2]", "[1,1,2]"}},
      {R"({"prefixItems": [{"const": 1}], "maxItems": 2})", {"[1,{\"x\":[]}]", "[1]"}, {"[1,2,3]"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["b"], "additionalProperties": false})",
       {R"({"b":2})", R"({"a":1,"b":2})", R"({"b": 2, "c": 3})", "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3\n}",
        R"({ "b":2 })"},
       {"{}", R"({"a":1})", R"({"b":2,"a":1})", R"({"b":2,})", R"({"b":2,"b":2})", R"({"b" :2})", R"({"b":  2})",
        R"({"b":2,"d":1})", R"({,"b":2})", R"({"a":1"b":2})", R"({"\u0062":2})"}},
      {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}})",
       {"{}", R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {"{ }", R"({"c":1})", R"({"b":2,"a":1})"}},
      {R"({"type": "object", "properties": {}})", {"{}"}, {R"({"a":1})"}},
      {R"({"type": "object"})",
       {"{}", R"({"a":1,"b":[{}],"":null,"é 中":{"a":1}})", R"({"a":{"a":{"a":1}},"b":{"a":1}})"},
       {"[]", R"({"a":1,"a":2})", R"({"a":1,"b":2,"a":3})", R"({"":1,"":2})", R"({"a":{"b":1,"b":2}})",
        R"({"a\n":1})"}},
      {R"({"properties": {"a": {"const": 1}}, "required": ["z"], "additionalProperties": {"type": "integer"}})",
       {R"({"z":5})", R"({"a":1,"z":5})", R"({"a":1,"z":5,"y":6,"zz":7})"},
       {R"({"a":1})", R"({"z":5,"z":6})", R"({"z":5,"a":1})", R"({"z":"5"})", R"({"z":5,"y":6,"y":7})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}, {"const": "x"}]})",
       {"1", "[\"a\"]", "\"x\""},
       {"\"y\"", "[1]"}},
      {R"({"oneOf": [{"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k", "x"]},
                     {"properties": {"k": {"const": "ab"}, "y": {"type": "string"}}, "required": ["k", "y"]}]})",
       {R"({"k":"a","x":1})", R"({"k":"ab","y":"1"})"},
       {R"({"k":"a","y":"1"})", R"({"k":"ab","x":1})"}},
      {R"({"$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
           "required": ["v", "kids"], "additionalProperties": false}}, "$ref": "#/$defs/tree"})",
       {R"({"v":1,"kids":[]})", R"({"v":1,"kids":[{"v":2,"kids":[{"v":3,"kids":[]}]},{"v":4,"kids":[]}]})"},
       {R"({"v":1})", R"({"v":1,"kids":[{}]})"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
      {R"({"properties": {"a/b~c": {"const": 1}, "d": {"$ref": "#/properties/a~1b~0c"}, "e": {"$ref": "#/properties/a~1%62%7e0c"}}})",
       {R"({"a/b~c":1,"d":1,"e":1})"},
       {R"({"d":2})"}},
      {R"({"properties": {"a\"\\\n": {"const": 1}}, "required": ["a\"\\\n"]})",
       {R"({"a\"\\\n":1})"},
       {"{\"a\"\\\n\":1}"}},
      {R"({"allOf": [{"const": 1}], "title": "one", "description": "x", "default": 1})", {"1"}, {"2"}},
      {R"({})", {"1", "{}", "[]", R"("x")", "null", "true", "-1.5e3", R"([{"a":[1,"b"]}])"}, {"", "x", "[1,]"}},
      {R"(true)", {"1", "{}"}, {""}},
      {R"({"properties": {"a": true, "b": {"anyOf": [false, {"const": 1}]}}})", {R"({"a":[],"b":1})"}, {R"({"b":2})"}},
      {R"({"minimum": 3})", {"3", "3.0", "4.5"}, {"2", "2.9", "-4", "\"3\""}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-28")", R"("1999-12-31")"},
       {R"("2024-02-31")", R"("2024-13-01")", R"("2024-1-1")"}},
      {R"({"type": "string", "format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto constraint = schema(c.schema);
    Random random(1);
    for (const char* text : c.good) {
      EXPECT_TRUE(takes(*constraint, text)) << text;
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(takes(*constraint, cut_at_random(random, text))) << text;
    }
    for (const char* text : c.bad) EXPECT_FALSE(takes(*constraint, text)) << text;
  }
}

TEST(Schema, IntegerBounds) {
  Random random(2);
  for (int round = 0; round < 150; ++round) {
    const int scale = pick(random, std::vector<int>{3, 30, 300, 2000});
    const int low = below(random, 2 * scale) - scale, high = low + below(random, scale);
    const bool above = chance(random, 0.3), under = chance(random, 0.3);
    const std::string text =
        fmt::format(R"({{"type": "integer", "{}": {}, "{}": {}}})", above ? "exclusiveMinimum" : "minimum", low,
                    under ? "exclusiveMaximum" : "maximum", high);
    const int first = low + above, last = high - under;
    if (first > last) {
      expect_error(ErrorKind::invalid_argument, "no JSON text satisfies", [&] { schema(text); });
      continue;
    }
    const auto constraint = schema(text);
    for (int x = low - 150; x <= high + 150; ++x)
      ASSERT_EQ(takes(*constraint, std::to_string(x)), x >= first && x <= last) << text << " " << x;
  }
  EXPECT_TRUE(takes(*schema(R"({"type": "integer", "minimum": 100})"), "999999999999999999"));
  EXPECT_FALSE(takes(*schema(R"({"type": "integer", "minimum": 100})"), "99"));
}

TEST(Schema, NumberBounds) {
  const std::vector<const char*> texts = {"0",    "0.0", "0.01", "1",     "1.0",  "1.5",  "2",    "2.00",
                                          "2.01", "9",   "9.99", "10",    "10.0", "10.5", "99.5", "100",
                                          "-0.5", "-1",  "-1.0", "-1.01", "-2",   "-2.5", "-10",  "-100.25"};
  Random random(3);
  for (int round = 0; round < 150; ++round) {
    const int low = below(random, 25) - 12, high = low + below(random, 13);
    const bool above = chance(random, 0.4), under = chance(random, 0.4);
    if (low == high && (above || under)) continue;
    const std::string text =
        fmt::format(R"({{"type": "number", "{}": {}, "{}": {}}})", above ? "exclusiveMinimum" : "minimum", low,
                    under ? "exclusiveMaximum" : "maximum", high);
    const auto constraint = schema(text);
    for (const char* number : texts) {
      const double x = std::strtod(number, nullptr);
      const bool good = (above ? x > low : x >= low) && (under ? x < high : x <= high);
      ASSERT_EQ(takes(*constraint, number), good) << text << " " << number;
    }
  }
}

// 54.99999999999999999999 is below 55, but not once it is a double.
TEST(Schema, NumbersStayApartFromABoundThatIsLeftOut) {
  const auto constraint = schema(R"({"type": "number", "exclusiveMinimum": -39, "exclusiveMaximum": 55})");
  for (const char* good : {"54.9999999999999", "-38.9999999999999", "54", "0.1234567890123"})
    EXPECT_TRUE(takes(*constraint, good)) << good;
  for (const char* bad : {"54.99999999999999", "-38.99999999999999", "55", "55.0", "-39"})
    EXPECT_FALSE(takes(*constraint, bad)) << bad;
  const auto large = schema(R"({"type": "number", "exclusiveMinimum": 123456789012345678})");
  EXPECT_TRUE(takes(*large, "123456789012345679"));
  EXPECT_FALSE(takes(*large, "123456789012345678.5"));
}

TEST(Schema, RefusesWithPlaceKeywordAndRemedy) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"properties": {"x": {"type": "array", "items": {"not": {}}}}})",
       "schema at #/properties/x/items: \"not\" is not supported; describe"},
      {R"({"type": "string", "nullable": true})", "write \"type\": [TYPE, \"null\"]"},
      {R"({"type": "strin"})", "schema at #: \"type\" is \"strin\"; there are object, array"},
      {R"({"type": "integer", "multipleOf": 5})", "\"multipleOf\" is not supported"},
      {R"({"type": "number", "minimum": 0.5})", "\"minimum\" must be a whole number"},
      {R"({"type": "array", "uniqueItems": true})", "\"uniqueItems\" is not supported"},
      {R"({"type": "array", "items": [{}]})", "write \"prefixItems\""},
      {R"({"patternProperties": {"a": {}}})", "\"patternProperties\" is not supported"},
      {R"({"$ref": "http://example.com/x"})", "is not supported; put the schema under \"$defs\""},
      {R"({"$ref": "#/$defs/none"})", "leads nowhere: there is no \"$defs\""},
      {R"({"$ref": "#/$defs/a%2Fb", "$defs": {"a/b": {}}})", "leads nowhere: there is no \"a\""},
      {R"({"$ref": "#/$defs/0/2", "$defs": [[1, 2]]})", "leads nowhere: there is no \"2\""},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "string"}]})", "refers to itself"},
      {R"({"anyOf": [{"type": "string"}], "type": "string"})", "\"type\" beside \"anyOf\" is not supported"},
      {R"({"$ref": "#/$defs/a", "minLength": 1, "$defs": {"a": {"type": "string"}}})", "\"minLength\" beside \"$ref\""},
      {R"({"allOf": [{}, {}]})", "\"allOf\" with several schemas"},
      {R"x({"type": "string", "pattern": "a(?=b)"})x", "look-around"},
      {R"({"type": "string", "pattern": "a", "maxLength": 3})", "put the length into the pattern"},
      {R"({"type": "string", "format": "color"})", "\"color\" is not supported; there are date"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "below minLength"},
      {R"({"type": "array", "minItems": 3, "prefixItems": [{}], "items": false})", "\"minItems\" is 3"},
      {R"({"type": "string", "minLength": -1})", "must be an integer of at least 0"},
      {R"({"type": "string", "minLength": 1e9})", "must be an integer"},
      {R"({"type": "string", "maxLength": 1000000})", "at most 50000"},
      {R"({"required": ["a"], "additionalProperties": false})", "names \"a\", which"},
      {R"({"enum": []})", "must be a list of values"},
      {R"({"type": "string", "enum": [1]})", "has no value of the schema's type"},
      {R"({"enum": [NaN]})", "is no JSON number"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no JSON text satisfies"},
      {R"(false)", "no JSON text satisfies"},
      {R"({"foo": 1})", "\"foo\" is not supported; remove it"},
      {R"(3)", "a schema is an object or a boolean, not integer"},
      {R"({)", "the schema is not valid JSON"},
      {"{\"const\": \"\xff\"}", "the schema is not UTF-8"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    expect_error(ErrorKind::invalid_argument, message, [&, t = text] { schema(t); });
  }
}

TEST(Schema, HostileSizes) {
  const auto nested = [](int depth, const std::string& open, const std::string& close, const std::string& core) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += open;
    text += core;
    for (int i = 0; i < depth; ++i) text += close;
    return text;
  };
  const auto fails = [](const std::string& text, const char* message) {
    expect_error(ErrorKind::invalid_argument, message, [&] { schema(text); });
  };
  fails(nested(10'000, "[", "]", ""), "not valid JSON");
  fails(nested(400, R"({"items":)", "}", "{}"), "more than 250 schemas inside each other");
  EXPECT_TRUE(takes(*schema(nested(80, R"({"type":"array","items":)", "}", "{}")), nested(80, "[", "]", "")));
  // Deeper than the stack of the automaton: nothing that could be completed.
  fails(nested(240, R"({"type":"array","minItems":1,"items":)", "}", "{}"), "no JSON text satisfies");
  std::string chain = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 5000; ++i) chain += fmt::format(R"("d{}": {{"$ref": "#/$defs/d{}"}}, )", i, i + 1);
  fails(chain + R"("d5000": {}}})", "references in a row");
  fails(
      R"({"type": "array", "items": {"type": "array", "items": {"type": "string", "maxLength": 40000}, "maxItems": 40000}, "maxItems": 40000})",
      "takes more than 100000 states");
  fails(R"x({"type": "string", "pattern": "((a{100}){100}){100}"})x", "takes more than 5000 states");
  fails(R"x({"type": "string", "pattern": ")x" + nested(3000, "(", ")", "a") + "\"}", "more than 100 nested groups");
  fails("\"" + std::string(2 << 20, 'x') + "\"", "bytes long; at most");
}

TEST(Schema, NestingIsLimitedWithoutDeadEnds) {
  const auto any = schema("{}");
  const auto state = any->clone();
  int depth = 0;
  while (depth < 1000 && state->accept(kFirstByte + '[')) ++depth;
  EXPECT_GT(depth, 90);
  EXPECT_LT(depth, 400);
  EXPECT_FALSE(allowed_tokens(*state).empty());
  static_cast<void>(state->accept(kFirstByte + '0'));
  for (int i = 0; i < depth; ++i) ASSERT_TRUE(state->accept(kFirstByte + ']')) << i;
  EXPECT_TRUE(state->accept(kEosToken));
}

// A thousand ways to every position: seconds for each mask, were their calls not made at once.
TEST(Schema, ManyOptionalPartsAreOneSet) {
  const auto constraint = schema(R"x({"type": "string", "pattern": "^(.?){1000}$"})x");
  Random random(4);
  EXPECT_TRUE(takes(*constraint, text::Json(std::string(1000, 'x')).dump()));
  EXPECT_FALSE(takes(*constraint, text::Json(std::string(1001, 'x')).dump()));
  random_walk(random, *constraint, 20, false);
}

// One token may hold several names when the schema lists them.
TEST(Schema, ListedNamesInOneToken) {
  const auto& all = small_vocabulary_bytes();
  const auto token = static_cast<std::int32_t>(std::find(all.begin(), all.end(), "\"a\":1,\"b\":") - all.begin());
  const auto constraint = schema(R"({"properties": {"a": {}, "b": {}}})");
  EXPECT_TRUE(takes(*constraint, {kFirstByte + '{', token, kFirstByte + '2', kFirstByte + '}'}));
}

// Branches that differ only far inside: as many stacks as there are ways, were they not shared.
TEST(Schema, AmbiguityDoesNotExplode) {
  const auto constraint = schema(R"({"anyOf": [
      {"properties": {"a": {"$ref": "#"}, "b": {"const": 1}}},
      {"properties": {"a": {"$ref": "#"}, "c": {"const": 2}}},
      {"properties": {"a": {"$ref": "#"}, "d": {"const": 3}}}, {"type": "null"}]})");
  std::string text = "null";
  for (int i = 0; i < 60; ++i) {
    text.insert(0, R"({"a":)");
    text += i % 3 == 0 ? R"(,"b":1})" : i % 3 == 1 ? R"(,"c":2})" : "}";
  }
  EXPECT_TRUE(takes(*constraint, text));
  EXPECT_FALSE(takes(*constraint, R"({"a":{"b":2}})"));
}

}  // namespace
}  // namespace hadal::grammar
