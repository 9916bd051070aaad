// Faults that users of other servers reported (repository#number), through this one.
#include "serve_fixture.h"

namespace hadal::serve {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kFunction =
    R"("name": "get_weather", "description": "Get the weather of a city.", )"
    R"("%": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]})";

// The function as each protocol has it.
std::string tools(std::string_view path) {
  std::string function = kFunction;
  function.replace(function.find('%'), 1, path == "/v1/messages" ? "input_schema" : "parameters");
  if (path == kChat) return R"([{"type": "function", "function": {)" + function + "}}]";
  return (path == "/v1/messages" ? "[{" : R"([{"type": "function", )") + function + "}]";
}

// What a chat's stream showed of content and reasoning, joined.
std::pair<std::string, std::string> shown(const Stream& s) {
  std::string content, reasoning;
  for (const Json& chunk : s.events) {
    if (at(chunk, "choices").as_array()->empty()) continue;
    const Json& delta = at(chunk, "choices", 0, "delta");
    if (const Json* t = delta.find("content")) content += *t->as_string();
    if (const Json* t = delta.find("reasoning_content")) reasoning += *t->as_string();
  }
  return {content, reasoning};
}

// DeepSeek-V3#1376, langchainjs#10954: a required call is refused in thinking mode. vllm#53831: none comes after the thinking.
TEST(ServeFaults, CallsAreRequiredWhileThinkingInEveryProtocol) {
  const std::string question = R"("What is the weather in Oslo?")";
  const std::string messages = R"("messages": [{"role": "user", "content": )" + question + "}], \"max_tokens\": 600";
  struct Case {
    const char* path;
    std::string body;
  };
  int calls = 0;
  for (int seed = 1; seed <= 3; ++seed)
    for (
        const Case& c :
        {Case{kChat, messages + R"(, "reasoning_effort": "low", "tool_choice": "required")"},
         Case{
             kChat,
             messages +
                 R"(, "thinking": {"type": "enabled"}, "tool_choice": {"type": "function", "function": {"name": "get_weather"}})"},
         Case{"/v1/messages",
              messages + R"(, "thinking": {"type": "enabled", "budget_tokens": 1024}, "tool_choice": {"type": "any"})"},
         Case{"/v1/responses",
              "\"input\": " + question +
                  R"(, "max_output_tokens": 600, "reasoning": {"effort": "low"}, "tool_choice": "required")"}}) {
      const HttpClient::Answer answer =
          shared_server().post(c.path, fmt::format(R"({{{}, "seed": {}, "tools": {}}})", c.body, seed, tools(c.path)));
      ASSERT_EQ(answer.status, 200) << answer.body;
      const bool cut = answer.body.find("\"length\"") != std::string::npos ||
                       answer.body.find("\"max_tokens\"") != std::string::npos ||
                       answer.body.find("\"incomplete\"") != std::string::npos;
      if (cut) continue;  // it thought for too long
      ++calls;
      EXPECT_NE(answer.body.find("\"name\": \"get_weather\""), std::string::npos) << answer.body;
    }
  EXPECT_GT(calls, 3);
}

// opencode#24083, LibreChat#12836: 400 when the client does not pass reasoning_content back.
TEST(ServeFaults, ReasoningOfEarlierTurnsMayBeMissing) {
  for (const char* reasoning : {"", R"("reasoning_content": "I look it up.", )", R"("reasoning_content": null, )"}) {
    const HttpClient::Answer answer = shared_server().post(
        kChat,
        fmt::format(
            R"({{"messages": [{{"role": "user", "content": "What is the weather in Oslo?"}}, {{"role": "assistant", {}"content": "",
            "tool_calls": [{{"id": "a", "type": "function", "function": {{"name": "get_weather", "arguments": "{{\"city\": \"Oslo\"}}"}}}}]}},
            {{"role": "tool", "tool_call_id": "a", "content": "Sunny"}}], "reasoning_effort": "high", "max_tokens": 5, "tools": {}}})",
            reasoning, tools(kChat)));
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
}

// vllm#41132: the JSON lands in the reasoning.
TEST(ServeFaults, JsonComesBehindTheReasoning) {
  int complete = 0;
  for (int seed = 1; seed <= 4; ++seed) {
    HttpClient client = shared_server().client();
    const Stream s = read_stream(
        client, kChat,
        fmt::format(
            R"({{"messages": [{{"role": "user", "content": "What is 3 plus 4?"}}], "reasoning_effort": "low", "max_tokens": 400, "seed": {}, "stream": true,
            "response_format": {{"type": "json_schema", "json_schema": {{"name": "x", "schema": {{"type": "object", "properties": {{"n": {{"type": "integer"}}}}, "required": ["n"]}}}}}}}})",
            seed));
    if (text_at(s.events.back(), "choices", 0, "finish_reason") == "length") continue;
    ++complete;
    const auto [content, reasoning] = shown(s);
    EXPECT_TRUE(at(Json::parse_strict(content), "n").as_integer()) << content;
    EXPECT_EQ(reasoning.find("</think>"), std::string::npos);
  }
  EXPECT_GT(complete, 0);
}

// vllm#40801, sglang#34600, vllm-ascend#9767 and many others: markup or special tokens in what is shown.
TEST(ServeFaults, NoMarkupIsShown) {
  for (int seed = 1; seed <= 8; ++seed) {
    HttpClient client = shared_server().client();
    const auto [content, reasoning] = shown(read_stream(
        client, kChat,
        fmt::format(
            R"({{"messages": [{{"role": "user", "content": "What is the weather in Oslo and in Rome?"}}], "temperature": 1.3, "max_tokens": 60, "seed": {},
                "reasoning_effort": "{}", "stream": true, "tools": {}}})",
            seed, seed % 2 ? "none" : "low", tools(kChat))));
    for (const std::string& text : {content, reasoning})
      for (const char* mark : {"｜DSML｜", "<｜", "｜>", "<think>", "</think>"})
        EXPECT_EQ(text.find(mark), std::string::npos) << text;
  }
}

// vllm#57052: stop strings are not looked for when the prompt is token ids.
TEST(ServeFaults, StopsWorkForPromptsOfTokenIds) {
  const Json ids = parse_body(shared_server().post("/tokenize", R"({"prompt": "Once upon a time"})"));
  const auto say = [&](const std::string& more) {
    return text_at(parse_body(shared_server().post(
                       "/v1/completions", fmt::format(R"({{"prompt": {}, "max_tokens": 40, "temperature": 0{}}})",
                                                      at(ids, "tokens").dump(), more))),
                   "choices", 0, "text");
  };
  const std::string free = say("");
  ASSERT_GT(free.size(), 30u);
  const std::string stop = free.substr(12, 5);
  EXPECT_EQ(say(", \"stop\": " + Json(stop).dump()), free.substr(0, free.find(stop)));
}

// CLIProxyAPI#3076: clients take the first usage that they see, so none may come before the last chunk.
TEST(ServeFaults, UsageIsNullUntilTheLastChunk) {
  for (const char* path : {kChat, "/v1/completions"})
    for (const bool wanted : {false, true}) {
      HttpClient client = shared_server().client();
      const Stream s = read_stream(
          client, path,
          fmt::format(
              R"({{"messages": [{{"role": "user", "content": "x"}}], "prompt": "x", "max_tokens": 5, "stream": true{}}})",
              wanted ? R"(, "stream_options": {"include_usage": true})" : ""));
      ASSERT_GT(s.events.size(), 2u);
      for (const Json& chunk : s.events) {
        const bool last = &chunk == &s.events.back();
        const Json* usage = chunk.find("usage");
        EXPECT_EQ(usage != nullptr, wanted);
        EXPECT_EQ(at(chunk, "choices").as_array()->empty(), wanted && last);
        if (wanted) { EXPECT_EQ(usage->is_null(), !last); }
      }
    }
}

// vllm#40854: no answer to an agent's messages, which come with many tools.
TEST(ServeFaults, ManyTools) {
  std::string list;
  for (int i = 0; i < 60; ++i)
    list += fmt::format(
        R"({}{{"name": "tool_{}", "description": "{}", "input_schema": {{"type": "object", "properties": {{"path": {{"type": "string"}}}}, "required": ["path"]}}}})",
        i ? ", " : "", i, std::string(120, 'd'));
  for (const char* choice : {"auto", "any"}) {
    const HttpClient::Answer answer = shared_server().post(
        "/v1/messages",
        fmt::format(
            R"({{"messages": [{{"role": "user", "content": "Hello"}}], "max_tokens": 20, "tools": [{}], "tool_choice": {{"type": "{}"}}}})",
            list, choice));
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
}

}  // namespace
}  // namespace hadal::serve
