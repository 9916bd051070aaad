#include "text/test_support.h"

#include <cmath>
#include <limits>

namespace hadal::text {
namespace {

std::string again(std::string_view text) { return Json::parse(text).dump(); }

// Expected values were made with json.dumps(json.loads(x), ensure_ascii=False) of Python 3.11.
TEST(Json, PrintsLikePython) {
  EXPECT_EQ(again("1e5"), "100000.0");
  EXPECT_EQ(again("1e16"), "1e+16");
  EXPECT_EQ(again("123456789012345678"), "123456789012345678");
  EXPECT_EQ(again("123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(again("-0"), "0");
  EXPECT_EQ(again("-0.0"), "-0.0");
  EXPECT_EQ(again("1E400"), "Infinity");
  EXPECT_EQ(again("-1e400"), "-Infinity");
  EXPECT_EQ(again("1e-400"), "0.0");
  EXPECT_EQ(again("NaN"), "NaN");
  EXPECT_EQ(again("0.0001"), "0.0001");
  EXPECT_EQ(again("0.00001"), "1e-05");
  EXPECT_EQ(again("0.1e-7"), "1e-08");
  EXPECT_EQ(again("1.5e300"), "1.5e+300");
  EXPECT_EQ(again("9007199254740993.0"), "9007199254740992.0");
  EXPECT_EQ(again("1234567890.12345"), "1234567890.12345");
  EXPECT_EQ(again("5e-324"), "5e-324");
  EXPECT_EQ(again("1.7976931348623157e308"), "1.7976931348623157e+308");
  EXPECT_EQ(again(" [ 1 , {\"b\" : null, \"a\":true} ,\"x\" ] "), R"([1, {"b": null, "a": true}, "x"])");
  EXPECT_EQ(again("[]"), "[]");
  EXPECT_EQ(again("{}"), "{}");
  EXPECT_EQ(again(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
  EXPECT_EQ(again(R"("\u00e9\ud83d\ude00\/\b\f\u0001\u007f")"), "\"é😀/\\b\\f\\u0001\x7f\"");
  EXPECT_EQ(again(R"("\ud800x")"), "\"\uFFFDx\"");
}

TEST(Json, KeepsTheLastOfManyRepeatedKeys) {
  std::string text = "{";
  for (int i = 0; i < 40; ++i)
    text += "\"k" + std::to_string(i % 20) + "\":" + std::to_string(i) + (i < 39 ? "," : "}");
  const Json value = Json::parse(text);
  ASSERT_EQ(value.as_object()->size(), 20u);
  EXPECT_EQ((*value.as_object())[3].first, "k3");
  EXPECT_EQ(value.find("k3")->as_integer(), 23);
}

TEST(Json, RefusesWhatPythonRefuses) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\":1,}", "{a:1}", "'a'", "01", "1.", ".5", "+1", "1e", "\"a", "\"\\x\"",
                          "\"\\u12\"", "tru", "nan", "1 2", "\"a\nb\"", "{\"a\" 1}", "[1 2]",
                          // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one string
                          "\xEF\xBB\xBF"
                          "1",
                          "-"}) {
    EXPECT_FALSE(Json::try_parse(bad)) << bad;
    expect_error(ErrorKind::invalid_data, "not valid JSON", [&] { Json::parse(bad); });
  }
  EXPECT_FALSE(Json::try_parse(std::string(100000, '[')));
}

TEST(Json, StrictRefusesWhatReadersDisagreeOn) {
  std::string many = "{";
  for (int i = 0; i < 20; ++i) many += fmt::format("\"k{}\": {}, ", i, i);
  for (const std::string& bad :
       {std::string("{\"a\": 1, \"a\": 1}"), many + "\"k7\": 0}", std::string("[NaN]"), std::string("Infinity"),
        std::string("-Infinity"), std::string("1e400"), std::string("\"\xff\""), std::string("\"\xed\xa0\x80\"")}) {
    EXPECT_TRUE(Json::try_parse(bad)) << bad;
    expect_error(ErrorKind::invalid_data, "not valid JSON", [&] { Json::parse_strict(bad); });
  }
  EXPECT_EQ(Json::parse_strict(many + "\"k\": 1e300}").dump(), Json::parse(many + "\"k\": 1e300}").dump());
}

TEST(Json, FloatsRoundTrip) {
  property("repr reads back as the same double", [](std::uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isfinite(value)) RC_ASSERT(std::strtod(python_float_repr(value).c_str(), nullptr) == value);
  });
  property("strings round trip", [] {
    std::string literal;
    const std::string text = *any_text();
    append_json_string(text, literal);
    RC_ASSERT(*Json::parse(literal).as_string() == text);
  });
}

}  // namespace
}  // namespace hadal::text
