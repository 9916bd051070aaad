#include "text/prompt_v41.h"

#include "text/test_support.h"

namespace hadal::text {
namespace {

bool flag_at(const Json& object, const char* key, bool otherwise) {
  const Json* value = object.find(key);
  return value && value->as_bool() ? *value->as_bool() : otherwise;
}

std::vector<Json> list_at(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value && value->as_array() ? *value->as_array() : std::vector<Json>();
}

std::vector<ChatMessage> messages_of(const Json& row) {
  std::vector<ChatMessage> messages;
  for (const Json& m : list_at(row, "messages")) {
    ChatMessage message;
    const std::string role = string_at(m, "role");
    message.role = role == "system"      ? Role::system
                   : role == "user"      ? Role::user
                   : role == "assistant" ? Role::assistant
                   : role == "tool"      ? Role::tool
                                         : Role::latest_reminder;
    message.content = string_at(m, "content");
    message.reasoning = string_at(m, "reasoning");
    message.prefix = flag_at(m, "prefix", false);
    message.tool_call_id = string_at(m, "tool_call_id");
    message.tools = list_at(m, "tools");
    for (const Json& call : list_at(m, "tool_calls"))
      message.tool_calls.push_back({string_at(call, "id"), string_at(call, "name"), string_at(call, "arguments")});
    messages.push_back(std::move(message));
  }
  return messages;
}

PromptOptions options_of(const Json& row) {
  const Json& o = *row.find("options");
  PromptOptions options;
  options.thinking = flag_at(o, "thinking", true);
  options.effort = static_cast<int>(*o.find("effort")->as_integer());
  options.tools = list_at(o, "tools");
  options.open_calls = flag_at(o, "open_calls", false);
  if (const Json* schema = o.find("response_schema")) options.response_schema = *schema;
  return options;
}

// Text, control, text, control, ..., text.
std::vector<std::string> alternating(const Prompt& prompt) {
  std::vector<std::string> parts(1);
  for (const Prompt::Part& part : prompt.parts()) {
    if (!part.control) {
      parts.back() += part.text;
    } else {
      parts.push_back(part.text);
      parts.emplace_back();
    }
  }
  return parts;
}

// The goldens leave the constant tools section out, but for the first.
std::vector<std::string> without_tools_section(std::vector<std::string> parts) {
  const std::string begin = "\n\n## Tools\n\nYou have access", end = "### Available Tool Schemas";
  for (std::size_t first = 0; first < parts.size(); first += 2) {
    const std::size_t at = parts[first].find(begin);
    if (at == std::string::npos) continue;
    std::size_t last = first;
    while (parts[last].find(end) == std::string::npos) last += 2;
    const std::string tail = parts[last].substr(parts[last].find(end) + end.size());
    parts[first] = parts[first].substr(0, at) + "@TOOLS@" + tail;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                parts.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    break;
  }
  return parts;
}

// Goldens made with the official converter (tools/oracle-text/make_prompts.py).
TEST(PromptV41, EqualsTheOfficialConverter) {
  bool whole = true;
  for (const Json& row : read_json_lines("prompts.jsonl")) {
    std::vector<std::string> expected;
    for (const Json& part : list_at(row, "parts")) expected.push_back(*part.as_string());
    std::vector<std::string> actual = alternating(encode_prompt_v41(messages_of(row), options_of(row)));
    if (!whole) actual = without_tools_section(std::move(actual));
    whole = false;
    EXPECT_EQ(actual, expected) << row.dump();
  }
}

std::string render(const std::vector<ChatMessage>& messages, const PromptOptions& options = {}) {
  return encode_prompt_v41(messages, options).to_string();
}

ChatMessage say(Role role, std::string content) {
  ChatMessage message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

const std::string kBos = "<｜begin▁of▁sentence｜>";
const std::string kEffort =
    "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";

// The golden strings of the published encoding. Row 20 of the field reports: chat mode ends in </think>, thinking mode
// in <think>, with no newline; row 21: the effort line.
TEST(PromptV41, GoldenStrings) {
  PromptOptions chat;
  chat.thinking = false;
  const ChatMessage s = say(Role::system, "S"), u = say(Role::user, "U");
  EXPECT_EQ(render({s, u}, chat), kBos + "<｜System｜>S<｜User｜>U<｜Assistant｜></think>");
  EXPECT_EQ(render({s, u}), kBos + "<｜System｜>" + kEffort + "S<｜User｜>U<｜Assistant｜><think>");
  EXPECT_EQ(render({u}, chat), kBos + "<｜User｜>U<｜Assistant｜></think>");
  EXPECT_EQ(render({u}), kBos + "<｜System｜>" + kEffort + "<｜User｜>U<｜Assistant｜><think>");
  PromptOptions most;
  most.effort = 100;
  EXPECT_NE(render({u}, most).find("Reasoning Effort: 100 (range"), std::string::npos);
}

// Row 19: clients drop the reasoning of earlier turns; that is no error, and it is used where given.
TEST(PromptV41, ReasoningOfHistory) {
  ChatMessage a = say(Role::assistant, "A");
  const ChatMessage u = say(Role::user, "U");
  const std::string start = kBos + "<｜System｜>" + kEffort + "<｜User｜>U<｜Assistant｜>";
  a.reasoning = "R";
  EXPECT_EQ(render({u, a, u}), start + "</think>A<｜end▁of▁sentence｜><｜User｜>U<｜Assistant｜><think>");
  PromptOptions keep;
  keep.drop_thinking = false;
  EXPECT_EQ(render({u, a, u}, keep), start + "<think>R</think>A<｜end▁of▁sentence｜><｜User｜>U<｜Assistant｜><think>");
  a.reasoning.clear();
  EXPECT_EQ(render({u, a, u}, keep), start + "<think></think>A<｜end▁of▁sentence｜><｜User｜>U<｜Assistant｜><think>");
}

// Row 11: arguments from history appear once, key by key, not wrapped. They may be a JSON string that holds JSON.
TEST(PromptV41, ArgumentsOfHistory) {
  ChatMessage a = say(Role::assistant, "");
  PromptOptions chat;
  chat.thinking = false;
  const auto rendered = [&](const std::string& arguments) {
    a.tool_calls = {{"1", "f", arguments}};
    const std::string all = render({say(Role::user, "U"), a}, chat);
    const std::string begin = "invoke name=\"f\">\n";
    const std::size_t at = all.find(begin) + begin.size();
    return all.substr(at, all.find("\n</｜DSML｜ invoke>") - at);
  };
  const auto parameter = [](const std::string& name, const std::string& kind, const std::string& value) {
    return "<｜DSML｜ parameter name=\"" + name + "\" string=\"" + kind + "\">" + value + "</｜DSML｜ parameter>";
  };
  EXPECT_EQ(rendered(R"({"a":"x","b":[1,2]})"), parameter("a", "true", "x") + "\n" + parameter("b", "false", "[1, 2]"));
  EXPECT_EQ(rendered(R"("{\"a\":1e5}")"), parameter("a", "false", "100000.0"));
  EXPECT_EQ(rendered(R"({"n":123456789012345678901234567890})"),
            parameter("n", "false", "123456789012345678901234567890"));
  EXPECT_EQ(rendered("free text"), parameter("arguments", "true", "free text"));
  EXPECT_EQ(rendered("{}"), "");
}

TEST(PromptV41, Tasks) {
  ChatMessage u = say(Role::user, "U");
  u.task = "query";
  PromptOptions chat;
  chat.thinking = false;
  EXPECT_EQ(render({u}, chat), kBos + "<｜User｜>U<｜query｜>");
  EXPECT_EQ(render({u, say(Role::assistant, "A"), say(Role::user, "V")}, chat),
            kBos + "<｜User｜>U<｜query｜>A<｜end▁of▁sentence｜><｜User｜>V<｜Assistant｜></think>");
  EXPECT_EQ(render({u, say(Role::user, "V")}, chat), kBos + "<｜User｜>U<｜User｜>V<｜Assistant｜></think>");
  u.task = "action";
  EXPECT_EQ(render({u}, chat), kBos + "<｜User｜>U<｜Assistant｜></think><｜action｜>");
  u.task = "sing";
  expect_error(ErrorKind::invalid_argument, "unknown task \"sing\"", [&] { render({u}); });
}

// Whatever the texts hold, the control tokens are those of the roles.
TEST(PromptV41, TextsAddNoControlTokens) {
  property("control tokens do not depend on the texts", [] {
    const auto build = [](const std::vector<std::string>& texts) {
      ChatMessage a = say(Role::assistant, texts[2]);
      a.reasoning = texts[3];
      a.tool_calls = {{"1", texts[4], texts[5]}, {"2", "f", Json(Json::Object{{texts[6], Json(texts[7])}}).dump()}};
      ChatMessage t = say(Role::tool, texts[8]);
      t.tool_call_id = "1";
      PromptOptions options;
      options.tools = {Json(Json::Object{{"name", Json(texts[9])}})};
      std::vector<std::string> controls;
      const Prompt prompt = encode_prompt_v41({say(Role::system, texts[0]), say(Role::user, texts[1]), a, t}, options);
      for (const auto& part : prompt.parts())
        if (part.control) controls.push_back(part.text);
      return controls;
    };
    std::vector<std::string> texts;
    for (int i = 0; i < 10; ++i) texts.push_back(*any_text());
    texts[5] = "not JSON " + texts[5];
    RC_ASSERT(build(texts) == build({"", "", "", "", "", "x", "", "", "", ""}));
  });
}

TEST(PromptV41, Refusals) {
  PromptOptions options;
  options.effort = 0;
  expect_error(ErrorKind::invalid_argument, "effort 0", [&] { render({say(Role::user, "U")}, options); });
  ChatMessage u = say(Role::user, "U");
  u.prefix = true;
  expect_error(ErrorKind::invalid_argument, "prefix", [&] { render({u}); });
  EXPECT_EQ(effort_of_name("max"), 100);
  EXPECT_EQ(effort_of_name("none"), std::nullopt);
  EXPECT_EQ(canonical_tool(Json::parse(R"({"strict":true,"parameters":{"b":1,"a":2},"name":"f"})")).dump(),
            R"({"name": "f", "description": "", "parameters": {"b": 1, "a": 2}})");
  expect_error(ErrorKind::invalid_argument, "no function name", [] { canonical_tool(Json::parse("{}")); });
}

}  // namespace
}  // namespace hadal::text
