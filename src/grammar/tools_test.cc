// Tool calls: the prompt encoder writes what must be taken, the output parser reads what was let through.
#include "grammar/tools.h"

#include "grammar/test_support.h"
#include "text/output_parser.h"
#include "text/prompt_v41.h"

namespace hadal::grammar {
namespace {

using text::Json;

std::vector<Tool> example_tools() {
  return {
      {"get_weather",
       Json::parse(
           R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
          "unit": {"enum": ["C", "F"]}}, "required": ["city"], "additionalProperties": false})")},
      {"search",
       Json::parse(
           R"({"type": "object", "properties": {"q": {"type": ["string", "null"], "maxLength": 5}, "filter": {"type": "object",
          "properties": {"tags": {"type": "array", "items": {"type": "string"}}}, "required": ["tags"]}, "any": {}}, "required": ["q"]})")},
      {"now", Json()},
      {"free", Json::parse(R"({"type": "object"})")},
      {"loose", Json::parse(R"({"not": {}})"), false},
  };
}

std::shared_ptr<const Constraint> calls(const ToolChoice& choice, const std::vector<Tool>& tools = example_tools()) {
  static Grammars grammars(small_vocabulary());
  return grammars.tool_calls(tools, choice);
}

// What the model writes behind </think> for these calls, as the prompt encoder renders it; the DSML mark as \x01.
std::string rendered(const std::string& content, const std::vector<text::ToolCall>& tool_calls) {
  text::ChatMessage user, answer;
  user.content = "hi";
  answer.role = text::Role::assistant;
  answer.content = content;
  answer.tool_calls = tool_calls;
  text::PromptOptions options;
  options.thinking = false;
  options.generate = false;
  const text::Prompt prompt = text::encode_prompt_v41({user, answer}, options);
  std::string out;
  bool inside = false;
  for (const auto& part : prompt.parts()) {
    if (part.control && part.text == text::v41::think_close) {
      inside = true;
    } else if (inside && part.control) {
      if (part.text == text::v41::dsml) out += '\x01';
    } else if (inside) {
      out += part.text;
    }
  }
  return out;
}

bool takes_markup(Random& random, const Constraint& constraint, const std::string& markup) {
  bool all = takes(constraint, as_bytes(markup, true));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(takes(constraint, cut_at_random(random, markup, true)), all) << markup;
  return all;
}

struct ParsedCall {
  std::string name, arguments;
  bool complete = false;
};
struct Parsed {
  std::string content;
  std::vector<ParsedCall> calls;
};
Parsed parse(const std::vector<std::int32_t>& tokens, bool opened) {
  text::OutputParser::Options options;
  text::OutputParser parser({false, opened, true}, options);
  std::vector<text::OutputEvent> events;
  for (const std::int32_t token : tokens)
    parser.feed(token == kDsmlToken
                    ? text::TokenPiece{std::string(text::v41::dsml), true}
                    : text::TokenPiece{small_vocabulary_bytes()[static_cast<std::size_t>(token)], false},
                events);
  parser.finish(events);
  Parsed result;
  for (const text::OutputEvent& event : events) {
    if (event.kind == text::OutputEvent::content) result.content += event.text;
    if (event.kind == text::OutputEvent::call_begin) result.calls.push_back({event.text, "", false});
    if (event.kind == text::OutputEvent::call_arguments) result.calls.back().arguments += event.text;
    if (event.kind == text::OutputEvent::call_end) result.calls.back().complete = event.complete;
  }
  return result;
}

TEST(ToolCalls, TakesWhatThePromptEncoderWrites) {
  Random random(5);
  const std::vector<std::vector<text::ToolCall>> good = {
      {{"", "get_weather", R"({"city": "Rome"})"}},
      {{"", "get_weather", R"({"city": "São \"Paulo\"\n</x> <｜DSML｜>", "days": 14, "unit": "F"})"}},
      {{"", "get_weather", R"({"city": ""})"},
       {"", "now", "{}"},
       {"", "search", R"({"q": null, "filter": {"tags": ["a", "</"]}})"}},
      {{"", "search", R"({"q": "abcde", "any": {"x": [1, "y"]}})"}},
      {{"", "search", R"({"q": "é中", "any": "text, freely"})"}},
      {{"", "search", R"({"q": "", "any": false})"}},
      {{"", "free", R"({"x": 1, "y": "z", "x y": {}})"}},
      {{"", "free", "{}"}},
      {{"", "loose", R"({"anything": [1.5], "goes": "here"})"}},
  };
  for (const auto& tool_calls : good) {
    const std::string markup = rendered("", tool_calls);
    for (const auto kind : {ToolChoice::automatic, ToolChoice::required})
      EXPECT_TRUE(takes_markup(random, *calls({kind, "", true, false}), markup)) << markup;
    EXPECT_TRUE(takes_markup(random, *calls({}), rendered("First I look.\n<b> \x7f", tool_calls)));
    EXPECT_TRUE(
        takes_markup(random, *calls({ToolChoice::required, "", true, true}), markup.substr(markup.find('>') + 2)))
        << markup;
    EXPECT_EQ(takes_markup(random, *calls({ToolChoice::required, "", false, false}), markup), tool_calls.size() == 1);
    if (tool_calls.size() > 1) continue;
    for (const Tool& tool : example_tools())
      EXPECT_EQ(takes_markup(random, *calls({ToolChoice::named, tool.name, true, false}), markup),
                tool.name == tool_calls[0].name);
  }
}

TEST(ToolCalls, RefusesCallsThatDoNotFit) {
  Random random(6);
  const std::vector<text::ToolCall> bad = {{"", "get_weather", "{}"},
                                           {"", "get_weather", R"({"days": 3})"},
                                           {"", "get_weather", R"({"city": 5})"},
                                           {"", "get_weather", R"({"city": "x", "days": 15})"},
                                           {"", "get_weather", R"({"city": "x", "days": "3"})"},
                                           {"", "get_weather", R"({"city": "x", "unit": "K"})"},
                                           {"", "get_weather", R"({"city": "x", "other": 1})"},
                                           {"", "get_weather", R"({"days": 3, "city": "x"})"},
                                           {"", "search", R"({"q": "abcdef"})"},
                                           {"", "search", R"({"q": 1})"},
                                           {"", "search", R"({"q": "", "filter": {}})"},
                                           {"", "now", R"({"x": 1})"},
                                           {"", "unknown", "{}"},
                                           {"", "get_weathers", R"({"city": ""})"}};
  for (const auto& call : bad)
    for (const auto kind : {ToolChoice::automatic, ToolChoice::required})
      EXPECT_FALSE(takes_markup(random, *calls({kind, "", true, false}), rendered("", {call})))
          << call.name << call.arguments;
  // No parameter twice.
  const std::string tag = "<\x01 parameter name=\"x\" string=\"false\">1</\x01 parameter>\n";
  const std::string twice =
      "\n\n<\x01 calls>\n<\x01 invoke name=\"free\">\n" + tag + tag + "</\x01 invoke>\n</\x01 calls>";
  const std::string once = "\n\n<\x01 calls>\n<\x01 invoke name=\"free\">\n" + tag + "</\x01 invoke>\n</\x01 calls>";
  EXPECT_TRUE(takes_markup(random, *calls({ToolChoice::required, "", true, false}), once));
  EXPECT_FALSE(takes_markup(random, *calls({ToolChoice::required, "", true, false}), twice));
}

TEST(ToolCalls, ChoiceDecidesAboutText) {
  EXPECT_TRUE(takes(*calls({}), "Just an answer. <x> </ 中"));
  EXPECT_TRUE(takes(*calls({}), ""));
  EXPECT_FALSE(takes(*calls({}), as_bytes("a \x01", true)));          // the mark outside of a tag
  EXPECT_FALSE(takes(*calls({}), as_bytes("a <\x01 calls>", true)));  // a block cut off
  EXPECT_FALSE(begins(*calls({}), as_bytes("a <\x01 invoke", true)));
  EXPECT_FALSE(begins(*calls({ToolChoice::required, "", true, false}), "Hello"));
  EXPECT_FALSE(takes(*calls({ToolChoice::required, "", true, false}), ""));
  EXPECT_FALSE(
      takes(*calls({ToolChoice::required, "", true, false}), as_bytes("\n\n<\x01 calls>\n</\x01 calls>", true)));
  EXPECT_TRUE(takes(*calls({}, {}), "no tools"));
  EXPECT_FALSE(begins(*calls({}, {}), as_bytes("<\x01 calls>\n<", true)));
}

TEST(ToolCalls, WalksAreCallsThatFit) {
  Random random(8);
  const std::vector<Tool> tools = example_tools();
  for (int i = 0; i < 150; ++i) {
    ToolChoice choice{
        pick(random, std::vector<ToolChoice::Kind>{ToolChoice::automatic, ToolChoice::required, ToolChoice::named}), "",
        chance(random, 0.5), chance(random, 0.5)};
    if (choice.kind == ToolChoice::named) choice.name = pick(random, tools).name;
    const std::vector<std::int32_t> tokens = random_walk(random, *calls(choice), 20 + below(random, 100), i % 15 == 0);
    SCOPED_TRACE(text_of(tokens));
    const Parsed parsed = parse(tokens, choice.opened);
    if (choice.kind != ToolChoice::automatic || choice.opened) {
      ASSERT_FALSE(parsed.calls.empty());
      EXPECT_EQ(parsed.content, "");
    }
    EXPECT_TRUE(choice.parallel || parsed.calls.size() <= 1);
    for (const ParsedCall& call : parsed.calls) {
      EXPECT_TRUE(call.complete);
      EXPECT_TRUE(choice.kind != ToolChoice::named || call.name == choice.name) << call.name;
      const auto tool = std::find_if(tools.begin(), tools.end(), [&](const Tool& t) { return t.name == call.name; });
      ASSERT_NE(tool, tools.end()) << call.name;
      const auto arguments = Json::try_parse(call.arguments);
      ASSERT_TRUE(arguments) << call.arguments;
      ASSERT_TRUE(arguments->as_object()) << call.arguments;
      EXPECT_TRUE(!tool->enforce || tool->parameters.is_null() ||
                  is_valid(tool->parameters, tool->parameters, *arguments))
          << call.arguments;
      EXPECT_FALSE(repeats_a_name(call.arguments)) << call.arguments;
    }
  }
}

TEST(ToolCalls, AnswerOfASchemaOrCalls) {
  Grammars grammars(small_vocabulary());
  const Json schema = Json::parse(R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})");
  const std::vector<Tool> tools = {{"now", Json()}};
  const auto either = grammars.tool_calls(tools, {}, &schema);
  const std::string call = "\n\n<\x01 calls>\n<\x01 invoke name=\"now\">\n\n</\x01 invoke>\n</\x01 calls>";
  EXPECT_TRUE(takes(*either, R"({"a": 5})"));
  EXPECT_TRUE(takes(*either, as_bytes(call, true)));
  for (const std::string& text :
       {std::string(), std::string("Hello"), std::string(R"({"b": 5})"), R"({"a": 5})" + call})
    EXPECT_FALSE(takes(*either, as_bytes(text, true))) << text;
  // Where a call is asked for there is no answer.
  const auto must = grammars.tool_calls(tools, {ToolChoice::required, "", true, false}, &schema);
  EXPECT_FALSE(begins(*must, "{"));
  EXPECT_TRUE(takes(*must, as_bytes(call, true)));
  Random random(3);
  int answers = 0;
  for (int i = 0; i < 60; ++i) {
    const std::vector<std::int32_t> tokens = random_walk(random, *either, 30, i % 20 == 0);
    const Parsed parsed = parse(tokens, false);
    answers += parsed.calls.empty();
    if (!parsed.calls.empty()) continue;
    const auto value = Json::try_parse(parsed.content);
    ASSERT_TRUE(value) << parsed.content;
    EXPECT_TRUE(is_valid(schema, schema, *value)) << parsed.content;
  }
  EXPECT_GT(answers, 5);
  EXPECT_LT(answers, 55);
}

TEST(ToolCalls, Errors) {
  const auto fails = [](const std::vector<Tool>& tools, const ToolChoice& choice, const char* message) {
    expect_error(ErrorKind::invalid_argument, message, [&] { calls(choice, tools); });
  };
  fails({{"f", Json::parse(R"({"type": "object", "properties": {"a": {"type": "array", "items": {"not": {}}}}})")}}, {},
        "schema at f#/properties/a/items: \"not\" is not supported");
  fails({{"f", Json::parse(R"({"type": "string"})")}}, {}, "the arguments of a tool are an \"object\"");
  fails({{"f", Json::parse(R"({"anyOf": [{"type": "object"}]})")}}, {}, "list them in \"properties\"");
  fails({{"f", Json::parse(R"({"properties": {"a\"b": {}}})")}}, {}, "parameter \"a\"b\" cannot be called");
  fails({{"", Json()}}, {}, "tool \"\" cannot be called");
  fails({{"f", Json()}, {"f", Json()}}, {}, "two tools have the name \"f\"");
  fails({{"f", Json()}}, {ToolChoice::named, "g", true, false}, "tool_choice names \"g\"");
  fails({}, {ToolChoice::required, "", true, false}, "there are no tools");
  fails({{"f", Json::parse(R"({"properties": {"a": false}, "required": ["a"]})")}},
        {ToolChoice::required, "", true, false}, "no call satisfies");
  Grammars plain(std::make_shared<const Vocabulary>(small_vocabulary_bytes(), Vocabulary::Controls{kEosToken, -1, -1}));
  expect_error(ErrorKind::unsupported, "no control token ｜DSML｜", [&] { plain.tool_calls({{"f", Json()}}, {}); });
  expect_error(ErrorKind::unsupported, "no control token </think>",
               [&] { plain.after_reasoning(plain.json_object()); });
}

}  // namespace
}  // namespace hadal::grammar
