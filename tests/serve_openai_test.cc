// OpenAI's endpoints of a real server: what is streamed is what is not, and every mistake gets its answer.
#include "serve_fixture.h"

namespace hadal::serve {
namespace {

constexpr const char* kWeather =
    R"([{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}])";

std::string chat(const std::string& question, const std::string& more) {
  return fmt::format(R"({{"model": "tiny", "messages": [{{"role": "user", "content": {}}}], "max_tokens": 60, {}}})",
                     Json(question).dump(), more);
}

// The deltas of a chat stream, joined.
struct Joined {
  std::string content, reasoning, finish;
  std::vector<text::ToolCall> calls;
  Json::Array logprobs;
  Json usage;
};

Joined join(const Stream& s, int choice = 0) {
  Joined j;
  EXPECT_TRUE(s.done);
  for (const Json& chunk : s.events) {
    EXPECT_EQ(text_at(chunk, "object"), "chat.completion.chunk");
    if (at(chunk, "choices").as_array()->empty()) {
      j.usage = at(chunk, "usage");
      continue;
    }
    if (number_at(chunk, "choices", 0, "index") != choice) continue;
    const Json& delta = at(chunk, "choices", 0, "delta");
    EXPECT_TRUE(j.finish.empty() || j.finish == "null") << "a delta behind the end";
    j.finish = text_at(chunk, "choices", 0, "finish_reason");
    if (const Json* t = delta.find("content")) j.content += *t->as_string();
    if (const Json* t = delta.find("reasoning_content")) {
      j.reasoning += *t->as_string();
      EXPECT_EQ(t->dump(), delta.find("reasoning")->dump());
    }
    if (const Json* calls = delta.find("tool_calls")) {
      const Json& call = at(*calls, 0);
      const auto index = static_cast<size_t>(number_at(call, "index"));
      if (const Json* id = call.find("id")) {
        EXPECT_EQ(index, j.calls.size());
        j.calls.push_back({*id->as_string(), text_at(call, "function", "name"), {}});
      }
      j.calls.at(index).arguments += text_at(call, "function", "arguments");
    }
    if (const Json* logprobs = at(chunk, "choices", 0).find("logprobs"); !logprobs->is_null())
      for (const Json& entry : *at(*logprobs, "content").as_array()) j.logprobs.push_back(entry);
  }
  return j;
}

class StreamedIsWhole : public testing::TestWithParam<std::string> {};

TEST_P(StreamedIsWhole, Chat) {
  TestServer& server = shared_server();
  for (const char* question :
       {"What is the capital of France?", "Tell me a short story about a fox.", "What is the weather in Oslo?"}) {
    const std::string fields = R"("seed": 11, )" + GetParam();
    const HttpClient::Answer answer = server.post("/v1/chat/completions", chat(question, fields));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json whole = parse_body(answer);
    HttpClient client = server.client();
    const Joined streamed =
        join(read_stream(client, "/v1/chat/completions",
                         chat(question, fields + R"(, "stream": true, "stream_options": {"include_usage": true})")));
    const Json& message = at(whole, "choices", 0, "message");
    EXPECT_EQ(streamed.content, at(message, "content").is_null() ? "" : text_at(message, "content"));
    EXPECT_EQ(streamed.reasoning,
              message.find("reasoning_content") != nullptr ? text_at(message, "reasoning_content") : "");
    EXPECT_EQ(streamed.finish, text_at(whole, "choices", 0, "finish_reason"));
    for (const char* count : {"prompt_tokens", "completion_tokens", "total_tokens"})
      EXPECT_EQ(number_at(streamed.usage, count), number_at(whole, "usage", count));
    EXPECT_EQ(number_at(streamed.usage, "completion_tokens_details", "reasoning_tokens"),
              number_at(whole, "usage", "completion_tokens_details", "reasoning_tokens"));
    const Json* calls = message.find("tool_calls");
    ASSERT_EQ(streamed.calls.size(), calls != nullptr ? calls->as_array()->size() : 0);
    for (size_t i = 0; i < streamed.calls.size(); ++i) {
      EXPECT_EQ(streamed.calls[i].name, text_at(*calls, static_cast<int>(i), "function", "name"));
      EXPECT_EQ(streamed.calls[i].arguments, text_at(*calls, static_cast<int>(i), "function", "arguments"));
      EXPECT_NE(Json::parse(streamed.calls[i].arguments).as_object(), nullptr);
    }
    const Json& logprobs = at(whole, "choices", 0, "logprobs");
    EXPECT_EQ(Json(streamed.logprobs).dump(), logprobs.is_null() ? "[]" : at(logprobs, "content").dump());
    if (!logprobs.is_null()) {
      EXPECT_EQ(static_cast<int64_t>(streamed.logprobs.size()), number_at(whole, "usage", "completion_tokens"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fields, StreamedIsWhole,
    testing::Values(R"("temperature": 0)", R"("temperature": 1.2, "logprobs": true, "top_logprobs": 3)",
                    R"("reasoning_effort": "low")", R"("thinking": {"type": "enabled"}, "max_completion_tokens": 12)",
                    R"("stop": ["a", "Paris"], "logprobs": true)",
                    R"("stop": " the", "include_stop_str_in_output": true)",
                    R"("temperature": 0, "tools": )" + std::string(kWeather),
                    R"("temperature": 0, "parallel_tool_calls": false, "reasoning_effort": "high", "tools": )" +
                        std::string(kWeather)));

TEST(ServeOpenAi, AnswersAQuestion) {
  const HttpClient::Answer answer =
      shared_server().post("/v1/chat/completions", chat("What is the capital of France?", R"("temperature": 0)"));
  ASSERT_EQ(answer.status, 200);
  const Json body = parse_body(answer);
  EXPECT_NE(text_at(body, "choices", 0, "message", "content").find("Paris"), std::string::npos) << answer.body;
  EXPECT_EQ(text_at(body, "choices", 0, "finish_reason"), "stop");
  EXPECT_EQ(text_at(body, "model"), "tiny");
  EXPECT_FALSE(answer.header("x-request-id").empty());
}

TEST(ServeOpenAi, CallsATool) {
  const Json body = parse_body(shared_server().post(
      "/v1/chat/completions",
      chat("What is the weather in Oslo?", R"("temperature": 0, "tools": )" + std::string(kWeather))));
  EXPECT_EQ(text_at(body, "choices", 0, "finish_reason"), "tool_calls") << body.dump();
  EXPECT_EQ(text_at(body, "choices", 0, "message", "tool_calls", 0, "function", "name"), "get_weather");
  EXPECT_EQ(text_at(body, "choices", 0, "message", "tool_calls", 0, "type"), "function");
  EXPECT_TRUE(at(body, "choices", 0, "message", "content").is_null() ||
              at(body, "choices", 0, "message", "content").as_string() != nullptr);
  // And goes on with its result.
  const std::string id = text_at(body, "choices", 0, "message", "tool_calls", 0, "id");
  const HttpClient::Answer next =
      shared_server().post("/v1/chat/completions",
                           fmt::format(R"({{"messages": [{{"role": "user", "content": "What is the weather in Oslo?"}},
        {{"role": "assistant", "content": null, "tool_calls": [{{"id": "{}", "type": "function", "function": {{"name": "get_weather", "arguments": "{{\"city\": \"Oslo\"}}"}}}}]}},
        {{"role": "tool", "tool_call_id": "{}", "content": "Sunny"}}], "tools": {}, "max_tokens": 30, "temperature": 0}})",
                                       id, id, kWeather));
  EXPECT_EQ(next.status, 200) << next.body;
}

TEST(ServeOpenAi, SeedDecides) {
  const auto say = [](int seed) {
    return text_at(
        parse_body(shared_server().post(
            "/v1/chat/completions", chat("Tell me a story.", fmt::format(R"("seed": {}, "temperature": 1)", seed)))),
        "choices", 0, "message", "content");
  };
  EXPECT_EQ(say(5), say(5));
  EXPECT_NE(say(5), say(6));
}

TEST(ServeOpenAi, StopStringIsNotShownInPart) {
  const std::string free =
      text_at(parse_body(shared_server().post("/v1/chat/completions", chat("Tell me a story.", R"("temperature": 0)"))),
              "choices", 0, "message", "content");
  ASSERT_GT(free.size(), 40u);
  const std::string stop = free.substr(20, 9);
  HttpClient client = shared_server().client();
  const Joined streamed = join(read_stream(
      client, "/v1/chat/completions",
      chat("Tell me a story.", fmt::format(R"("temperature": 0, "stream": true, "stop": [{}])", Json(stop).dump()))));
  EXPECT_EQ(streamed.content, free.substr(0, free.find(stop)));
  EXPECT_EQ(streamed.finish, "stop");
  EXPECT_TRUE(shared_server().becomes_idle()) << "the engine goes on behind a stop string";
}

// A sample that a stop string ends costs nothing more, while the others go on as if nothing had been.
TEST(ServeOpenAi, StoppedSampleIsNotRunOn) {
  const std::shared_ptr<Engine> engine = shared_server().server.engine();
  const auto two = [&](const std::string& more) {
    const Json body = parse_body(shared_server().post(
        "/v1/chat/completions",
        chat("Tell me a story.", R"("n": 2, "seed": 3, "temperature": 1, "ignore_eos": true)" + more)));
    EXPECT_TRUE(shared_server().becomes_idle());
    return std::pair(text_at(body, "choices", 0, "message", "content"),
                     text_at(body, "choices", 1, "message", "content"));
  };
  const int64_t before = engine->stats().generated_tokens;
  const auto [first, second] = two("");
  const int64_t whole = engine->stats().generated_tokens - before;
  EXPECT_EQ(whole, 120);
  std::string stop;
  for (size_t at = 10; at < 30 && (stop.empty() || second.find(stop) != std::string::npos); ++at)
    stop = first.substr(at, 8);
  ASSERT_EQ(second.find(stop), std::string::npos) << "the samples are alike: " << first << " | " << second;
  const auto [ended, other] = two(fmt::format(R"(, "stop": [{}])", Json(stop).dump()));
  EXPECT_EQ(ended, first.substr(0, first.find(stop)));
  EXPECT_EQ(other, second);
  EXPECT_LT(engine->stats().generated_tokens - before - whole, 100);
}

TEST(ServeOpenAi, PrefixIsContinued) {
  const HttpClient::Answer answer = shared_server().post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "What is the capital of France?"}, {"role": "assistant", "content": "The capital of", "prefix": true}],
                                 "temperature": 0, "max_tokens": 20})");
  const std::string content = text_at(parse_body(answer), "choices", 0, "message", "content");
  EXPECT_TRUE(content.starts_with(" France")) << content;
}

TEST(ServeOpenAi, MinimumIgnoredEndAndStopTokens) {
  const auto count = [](const std::string& more) {
    const Json body = parse_body(shared_server().post(
        "/v1/chat/completions", chat("What is the capital of France?", R"("temperature": 0, )" + more)));
    return number_at(body, "usage", "completion_tokens");
  };
  const int64_t free = count(R"("n": 1)");
  EXPECT_LT(free, 40);
  EXPECT_EQ(count(R"("ignore_eos": true)"), 60);
  EXPECT_GE(count(R"("min_tokens": 50)"), 50);
  EXPECT_EQ(count(R"("max_completion_tokens": 3)"), 3);
}

TEST(ServeOpenAi, Completions) {
  TestServer& server = shared_server();
  for (const char* more :
       {R"("temperature": 0)", R"("seed": 3, "logprobs": 2)", R"("seed": 4, "echo": true)", R"("seed": 5, "stop": "e")",
        R"("prompt": [0, 17, 300], "seed": 6)", R"("prompt": ["Once upon", "The fox"], "temperature": 0)"}) {
    const std::string prompt =
        std::string(more).find("prompt") == std::string::npos ? R"("prompt": "Once upon a time", )" : "";
    const std::string body = fmt::format(R"({{"model": "another-name", {}"max_tokens": 20, {})", prompt, more);
    const HttpClient::Answer answer = server.post("/v1/completions", body + "}");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json whole = parse_body(answer);
    HttpClient client = server.client();
    const Stream s = read_stream(client, "/v1/completions", body + R"(, "stream": true})");
    EXPECT_TRUE(s.done);
    for (size_t i = 0; i < at(whole, "choices").as_array()->size(); ++i) {
      std::string text;
      for (const Json& chunk : s.events)
        if (number_at(chunk, "choices", 0, "index") == static_cast<int64_t>(i))
          text += text_at(chunk, "choices", 0, "text");
      EXPECT_EQ(text, text_at(whole, "choices", static_cast<int>(i), "text")) << more;
    }
  }
  const Json echo =
      parse_body(server.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 0, "echo": true})"));
  EXPECT_EQ(text_at(echo, "choices", 0, "text"), "Once upon a time");
  EXPECT_EQ(number_at(echo, "usage", "completion_tokens"), 0);
}

TEST(ServeOpenAi, TokenizeAndBack) {
  TestServer& server = shared_server();
  const Json ids =
      parse_body(server.post("/tokenize", R"({"prompt": "Hello, wörld! <think>", "add_special_tokens": false})"));
  EXPECT_EQ(number_at(ids, "count"), static_cast<int64_t>(at(ids, "tokens").as_array()->size()));
  EXPECT_EQ(text_at(parse_body(server.post("/detokenize", "{\"tokens\": " + at(ids, "tokens").dump() + "}")), "prompt"),
            "Hello, wörld! <think>");
  const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}])";
  const Json prompt = parse_body(server.post("/tokenize", "{" + messages + "}"));
  const Json answer = parse_body(server.post("/v1/chat/completions", "{" + messages + R"(, "max_tokens": 1})"));
  EXPECT_EQ(number_at(prompt, "count"), number_at(answer, "usage", "prompt_tokens"));
}

TEST(ServeOpenAi, Models) {
  const Json list = parse_body(shared_server().get("/v1/models"));
  EXPECT_EQ(text_at(list, "data", 0, "id"), "tiny");
  EXPECT_EQ(number_at(list, "data", 0, "max_model_len"), 8192);
  EXPECT_EQ(text_at(parse_body(shared_server().get("/v1/models/another-name")), "id"), "another-name");
  EXPECT_EQ(shared_server().get("/v1/models/gpt-9").status, 404);
}

struct Mistake {
  const char* path;
  std::string body;
  int status;
  const char* message;  // part of it
};

class ServeMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(ServeMistakes, AreNamed) {
  const Mistake& m = GetParam();
  const HttpClient::Answer answer = shared_server().post(m.path, m.body);
  EXPECT_EQ(answer.status, m.status) << m.body << "\n" << answer.body;
  const Json error = parse_body(answer);
  EXPECT_NE(text_at(error, "error", "message").find(m.message), std::string::npos) << m.body << "\n" << answer.body;
  for (const char* field : {"type", "param", "code"}) EXPECT_NE(at(error, "error").find(field), nullptr);
}

constexpr const char* kChat = "/v1/chat/completions";
const std::string kHi = R"("messages": [{"role": "user", "content": "hi"}])";

INSTANTIATE_TEST_SUITE_P(
    All, ServeMistakes,
    testing::Values(
        Mistake{kChat, "", 400, "not valid JSON"}, Mistake{kChat, "[]", 400, "the body is [], expected an object"},
        Mistake{kChat, "{", 400, "not valid JSON"}, Mistake{kChat, R"({"a": 1, "a": 2})", 400, "repeats a key"},
        Mistake{kChat, std::string(100000, '['), 400, "nested too deeply"},
        Mistake{kChat, "{\"a\": \"\xff\"}", 400, "UTF-8"},
        Mistake{kChat, R"({"temperature": 1e999})", 400, "too large"},
        Mistake{kChat, R"({"temperature": NaN})", 400, "not valid JSON"},
        Mistake{kChat, "{}", 400, "messages is missing, expected an array"},
        Mistake{kChat, R"({"messages": []})", 400, "no messages"},
        Mistake{kChat, R"({"messages": "hi"})", 400, "messages is \"hi\", expected an array"},
        Mistake{kChat, R"({"messages": [{"role": "robot", "content": "x"}]})", 400,
                "messages[0].role is \"robot\", expected system"},
        Mistake{kChat, R"({"messages": [{"content": "x"}]})", 400, "messages[0].role is missing"},
        Mistake{kChat, R"({"messages": [{"role": "user", "content": 5}]})", 400, "messages[0].content is 5"},
        Mistake{kChat,
                R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]})",
                400, "messages[0].content[0] is an image"},
        Mistake{kChat, "{" + kHi + R"(, "temperature": "hot"})", 400,
                "temperature is \"hot\", expected a number from 0 to 100"},
        Mistake{kChat, "{" + kHi + R"(, "temperature": -1})", 400, "temperature is -1"},
        Mistake{kChat, "{" + kHi + R"(, "top_p": 0})", 400, "top_p is 0"},
        Mistake{kChat, "{" + kHi + R"(, "top_p": true})", 400, "top_p is true"},
        Mistake{kChat, "{" + kHi + R"(, "n": 0})", 400, "n is 0, expected an integer from 1 to 128"},
        Mistake{kChat, "{" + kHi + R"(, "max_tokens": 0})", 400, "max_tokens is 0"},
        Mistake{kChat, "{" + kHi + R"(, "max_tokens": 1.5})", 400, "max_tokens is 1.5"},
        Mistake{kChat, "{" + kHi + R"(, "max_tokens": 99999999999999999999})", 400,
                "max_tokens is 99999999999999999999"},
        Mistake{kChat, "{" + kHi + R"(, "max_tokens": 9000})", 400, "the context is 8192 tokens, but"},
        Mistake{kChat, "{" + kHi + R"(, "stop": [1]})", 400, "stop is [1]"},
        Mistake{kChat, "{" + kHi + R"(, "stop": {"a": 1}})", 400, "stop is"},
        Mistake{kChat, "{" + kHi + R"(, "stream": "yes"})", 400, "stream is \"yes\", expected true or false"},
        Mistake{kChat, "{" + kHi + R"(, "stream_options": {"include_usage": true}})", 400, "stream = true"},
        Mistake{kChat, "{" + kHi + R"(, "logit_bias": {"x": 1}})", 400, "logit_bias has the key \"x\""},
        Mistake{kChat, "{" + kHi + R"(, "logit_bias": {"5": 101}})", 400, "logit_bias.5 is 101"},
        Mistake{kChat, "{" + kHi + R"(, "logit_bias": {"99999": 1}})", 400, "token id 99999"},
        Mistake{kChat, "{" + kHi + R"(, "top_logprobs": 3})", 400, "needs logprobs"},
        Mistake{kChat, "{" + kHi + R"(, "logprobs": true, "top_logprobs": 21})", 400,
                "top_logprobs is 21, expected an integer from 0 to 20"},
        Mistake{kChat, "{" + kHi + R"(, "seed": "x"})", 400, "seed is"},
        Mistake{kChat, "{" + kHi + R"(, "reasoning_effort": "huge"})", 400, "reasoning_effort is \"huge\""},
        Mistake{kChat, "{" + kHi + R"(, "reasoning_effort": 101})", 400, "reasoning_effort is 101"},
        Mistake{kChat, "{" + kHi + R"(, "thinking": {"type": "maybe"}})", 400, "thinking.type is \"maybe\""},
        Mistake{kChat, "{" + kHi + R"(, "tools": [{"type": "function"}]})", 400, "tools[0].function is missing"},
        Mistake{
            kChat,
            "{" + kHi +
                R"(, "tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "a"}}]})",
            400, "second tool"},
        Mistake{kChat, "{" + kHi + R"(, "tool_choice": "required"})", 400, "there are no tools"},
        Mistake{kChat, "{" + kHi + R"(, "tool_choice": {"type": "function", "function": {"name": "f"}}})", 400,
                "tool_choice.function.name is \"f\""},
        Mistake{kChat, "{" + kHi + R"(, "guided_regex": "a+"})", 400, "guided_regex is not supported"},
        Mistake{kChat, "{" + kHi + R"(, "model": "gpt-9"})", 404,
                "the model \"gpt-9\" does not exist; this server has tiny"},
        Mistake{"/v1/completions", R"({"prompt": 5})", 400, "prompt is 5"},
        Mistake{"/v1/completions", R"({"prompt": []})", 400, "prompt is []"},
        Mistake{"/v1/completions", R"({"prompt": [1, 99999]})", 400,
                "prompt[1] is 99999, expected a token id from 0 to 8191"},
        Mistake{"/v1/completions", R"({"prompt": "a", "suffix": "b"})", 400, "suffix is not supported"},
        Mistake{"/v1/completions", R"({"prompt": "a", "echo": true, "logprobs": 1})", 400,
                "echo together with logprobs"},
        Mistake{"/v1/completions", R"({"prompt": "a", "best_of": 3})", 400, "best_of is 3"},
        Mistake{"/detokenize", R"({"tokens": [-1]})", 400, "tokens[0] is -1"},
        Mistake{"/v1/embeddings", "{}", 404, "other kinds of models"},
        Mistake{"/v1/nothing", "{}", 404, "there is no POST"}, Mistake{"/health", "{}", 405, "only GET"}));

TEST(ServeOpenAi, UnknownFieldsAreAccepted) {
  const HttpClient::Answer answer = shared_server().post(
      kChat,
      "{" + kHi +
          R"(, "max_tokens": 1, "frobnicate": {"x": [1, null]}, "user": "me", "metadata": {"a": "b"}, "store": false})");
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST(ServeOpenAi, NullIsAbsent) {
  const HttpClient::Answer answer = shared_server().post(
      kChat, "{" + kHi +
                 R"(, "max_tokens": 1, "temperature": null, "stop": null, "tools": null, "tool_choice": null, "n": null,
      "stream": null, "logit_bias": null, "response_format": null, "seed": null, "stream_options": null, "reasoning_effort": null})");
  EXPECT_EQ(answer.status, 200) << answer.body;
}

}  // namespace
}  // namespace hadal::serve
