// Answers that a grammar enforces, and several samples of one prompt, through a real server.
#include "serve_fixture.h"

namespace hadal::serve {
namespace {

constexpr const char* kTools = R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}])";

std::string ask(const std::string& question, const std::string& more) {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": {}}}], "max_tokens": 300, "seed": 2, {}}})",
                     Json(question).dump(), more);
}

TEST(ServeConstraint, RequiredAndNamedCalls) {
  for (const auto& [choice, name] : {std::pair{R"("required")", ""},
                                     {R"({"type": "function", "function": {"name": "add"}})", "add"},
                                     {R"({"type": "function", "function": {"name": "get_weather"}})", "get_weather"}})
    for (const char* thinking : {"none", "low"})
      for (const char* question : {"Tell me a story.", "What is 3 plus 4?"}) {
        const std::string fields = fmt::format(
            R"("temperature": 1, "reasoning_effort": "{}", "parallel_tool_calls": false, "tools": {}, "tool_choice": {})",
            thinking, kTools, choice);
        const HttpClient::Answer answer = shared_server().post("/v1/chat/completions", ask(question, fields));
        ASSERT_EQ(answer.status, 200) << answer.body;
        const Json body = parse_body(answer);
        if (text_at(body, "choices", 0, "finish_reason") == "length") continue;  // it may think for long
        EXPECT_EQ(text_at(body, "choices", 0, "finish_reason"), "tool_calls") << answer.body;
        const Json& function = at(body, "choices", 0, "message", "tool_calls", 0, "function");
        if (*name != 0) { EXPECT_EQ(text_at(function, "name"), name); }
        const Json arguments = Json::parse_strict(text_at(function, "arguments"));
        if (text_at(function, "name") == "add") {
          EXPECT_TRUE(at(arguments, "a").as_integer() && at(arguments, "b").as_integer()) << arguments.dump();
        } else {
          EXPECT_NE(at(arguments, "city").as_string(), nullptr) << arguments.dump();
        }
      }
}

TEST(ServeConstraint, JsonSchema) {
  const std::string schema =
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "kind": {"enum": ["cat", "dog"]}}, "required": ["name", "age", "kind"], "additionalProperties": false})";
  for (const char* thinking : {"none", "low"}) {
    const std::string fields = fmt::format(
        R"("temperature": 1, "reasoning_effort": "{}", "response_format": {{"type": "json_schema", "json_schema": {{"name": "x", "strict": true, "schema": {}}}}})",
        thinking, schema);
    const HttpClient::Answer answer = shared_server().post("/v1/chat/completions", ask("Tell me a story.", fields));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json body = parse_body(answer);
    if (text_at(body, "choices", 0, "finish_reason") == "length") continue;
    const Json value = Json::parse_strict(text_at(body, "choices", 0, "message", "content"));
    EXPECT_EQ(value.as_object()->size(), 3u);
    EXPECT_GE(number_at(value, "age"), 0);
    EXPECT_LE(number_at(value, "age"), 150);
    EXPECT_TRUE(text_at(value, "kind") == "cat" || text_at(value, "kind") == "dog");
    // The same stream gives the same text.
    HttpClient client = shared_server().client();
    std::string streamed;
    for (const Json& chunk :
         read_stream(client, "/v1/chat/completions", ask("Tell me a story.", fields + R"(, "stream": true)")).events)
      if (const Json* text = at(chunk, "choices", 0, "delta").find("content")) streamed += *text->as_string();
    EXPECT_EQ(streamed, text_at(body, "choices", 0, "message", "content"));
  }
}

TEST(ServeConstraint, AnswerOfAFormatOrCalls) {
  const std::string schema =
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"enum": ["yes", "no"]}}, "required": ["a"]}}})";
  int answers = 0, calls = 0;
  for (const char* question : {"Tell me a story.", "What is the weather in Oslo?", "What is 3 plus 4?"})
    for (const char* choice : {"\"auto\"", "\"required\"", "\"none\""}) {
      const Json body = parse_body(shared_server().post(
          "/v1/chat/completions", ask(question, fmt::format(R"({}, "tools": {}, "tool_choice": {}, "temperature": 1)",
                                                            schema, kTools, choice))));
      const Json& message = at(body, "choices", 0, "message");
      const std::string finish = text_at(body, "choices", 0, "finish_reason");
      if (finish == "length") continue;
      if (finish == "tool_calls") {
        ++calls;
        EXPECT_NE(std::string_view(choice), "\"none\"");
        Json::parse_strict(text_at(message, "tool_calls", 0, "function", "arguments"));
      } else {
        ++answers;
        EXPECT_NE(std::string_view(choice), "\"required\"");
        const Json value = Json::parse_strict(text_at(message, "content"));
        EXPECT_TRUE(text_at(value, "a") == "yes" || text_at(value, "a") == "no") << value.dump();
      }
    }
  EXPECT_GT(answers, 0);
  EXPECT_GT(calls, 0);
}

TEST(ServeConstraint, WhatCannotBeEnforcedIsRefused) {
  const auto refused = [](const std::string& fields, const char* message) {
    const HttpClient::Answer answer = shared_server().post("/v1/chat/completions", ask("x", fields));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find(message), std::string::npos) << answer.body;
  };
  refused(
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "dependentSchemas": {"a": {}}}}})",
      "dependentSchemas");
  refused(R"("response_format": {"type": "json_schema"})", "response_format.json_schema is missing");
  refused(R"("response_format": {"type": "xml"})", "response_format.type is");
  refused(R"("response_format": {"type": "json_object"}, "ignore_eos": true)", "ignore_eos");
}

TEST(ServeConstraint, SamplesAreThoseOfTheirSeeds) {
  const auto texts = [](const HttpClient::Answer& answer) {
    std::vector<std::string> all;
    const Json body = parse_body(answer);
    for (size_t i = 0; i < at(body, "choices").as_array()->size(); ++i)
      all.push_back(text_at(body, "choices", static_cast<int>(i), "message", "content"));
    return all;
  };
  const HttpClient::Answer three =
      shared_server().post("/v1/chat/completions", ask("Tell me a story.", R"("n": 3, "max_completion_tokens": 30)"));
  ASSERT_EQ(three.status, 200) << three.body;
  const std::vector<std::string> together = texts(three);
  ASSERT_EQ(together.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const std::string body = fmt::format(
        R"({{"messages": [{{"role": "user", "content": "Tell me a story."}}], "max_tokens": 30, "seed": {}}})", 2 + i);
    EXPECT_EQ(texts(shared_server().post("/v1/chat/completions", body))[0], together[static_cast<size_t>(i)]);
  }
  EXPECT_TRUE(shared_server().becomes_idle());
}

}  // namespace
}  // namespace hadal::serve
