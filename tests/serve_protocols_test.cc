// Anthropic's messages and OpenAI's responses on a real server.
#include "serve_fixture.h"

namespace hadal::serve {
namespace {

constexpr const char* kTools = R"([{"name": "get_weather", "description": "Get the weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}])";

std::string ask(const std::string& question, const std::string& more) {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": {}}}], "max_tokens": 80, "seed": 3, {}}})",
                     Json(question).dump(), more);
}

// The message that a stream's events build.
Json assembled(const Stream& s) {
  Json::Array blocks;
  std::string text, stop = "null", usage;
  Json::Object block;
  bool stopped = false;
  for (size_t i = 0; i < s.events.size(); ++i) {
    const Json& e = s.events[i];
    const std::string type = text_at(e, "type");
    EXPECT_EQ(type, s.names[i]);
    EXPECT_FALSE(stopped);
    if (i == 0) { EXPECT_EQ(type, "message_start"); }
    if (type == "content_block_start") {
      EXPECT_EQ(number_at(e, "index"), static_cast<int64_t>(blocks.size()));
      block = *at(e, "content_block").as_object();
      text.clear();
    } else if (type == "content_block_delta") {
      for (const char* field : {"text", "thinking", "partial_json"})
        if (const Json* t = at(e, "delta").find(field)) text += *t->as_string();
    } else if (type == "content_block_stop") {
      for (auto& [name, value] : block) {
        if (name == "text" || name == "thinking") value = text;
        if (name == "input") value = Json::parse(text);
        if (name == "id") value = "";
      }
      blocks.emplace_back(block);
    } else if (type == "message_delta") {
      stop = text_at(e, "delta", "stop_reason");
      usage = at(e, "usage").dump();
    }
    stopped = type == "message_stop";
  }
  EXPECT_TRUE(stopped);
  return Json::Object{{"content", std::move(blocks)}, {"stop_reason", stop}, {"usage", Json::parse(usage)}};
}

TEST(ServeAnthropic, StreamedIsWhole) {
  TestServer& s = shared_server();
  for (const std::string& more :
       {std::string(R"("temperature": 0)"), std::string(R"("thinking": {"type": "enabled", "budget_tokens": 1024})"),
        std::string(R"("stop_sequences": ["e"])"), R"("temperature": 0, "tools": )" + std::string(kTools)})
    for (const char* question : {"What is the capital of France?", "What is the weather in Oslo?"}) {
      const HttpClient::Answer answer = s.post("/v1/messages", ask(question, more));
      ASSERT_EQ(answer.status, 200) << answer.body;
      Json whole = parse_body(answer);
      EXPECT_EQ(text_at(whole, "type"), "message");
      Json::Array blocks;
      for (const Json& b : *at(whole, "content").as_array()) {
        Json::Object block = *b.as_object();
        for (auto& [name, value] : block)
          if (name == "id") value = "";
        blocks.emplace_back(block);
      }
      HttpClient client = s.client();
      const Json streamed = assembled(read_stream(client, "/v1/messages", ask(question, more + R"(, "stream": true)")));
      EXPECT_EQ(at(streamed, "content").dump(), Json(blocks).dump());
      EXPECT_EQ(text_at(streamed, "stop_reason"), text_at(whole, "stop_reason"));
      EXPECT_EQ(number_at(streamed, "usage", "output_tokens"), number_at(whole, "usage", "output_tokens"));
    }
}

TEST(ServeAnthropic, ToolsAndResults) {
  TestServer& s = shared_server();
  const Json call = parse_body(s.post(
      "/v1/messages", ask("What is the weather in Oslo?", R"("temperature": 0, "tools": )" + std::string(kTools))));
  EXPECT_EQ(text_at(call, "stop_reason"), "tool_use") << call.dump();
  const Json::Array& blocks = *at(call, "content").as_array();
  const Json& use = blocks.back();
  EXPECT_EQ(text_at(use, "type"), "tool_use");
  EXPECT_NE(at(use, "input").as_object(), nullptr);
  const std::string id = text_at(use, "id");
  const HttpClient::Answer next = s.post(
      "/v1/messages",
      fmt::format(
          R"({{"max_tokens": 30, "system": [{{"type": "text", "text": "Be kind.", "cache_control": {{"type": "ephemeral"}}}}], "tools": {},
    "messages": [{{"role": "user", "content": [{{"type": "text", "text": "What is the weather in Oslo?", "cache_control": {{"type": "ephemeral"}}}}]}}, {{"role": "assistant", "content": {}}},
    {{"role": "user", "content": [{{"type": "tool_result", "tool_use_id": "{}", "content": [{{"type": "text", "text": "Sunny"}}]}}, {{"type": "text", "text": "So?"}}]}}]}})",
          kTools, at(call, "content").dump(), id));
  EXPECT_EQ(next.status, 200) << next.body;
}

TEST(ServeAnthropic, CountsTokens) {
  const std::string body = ask("Hello there", R"("system": "Be brief.", "tools": )" + std::string(kTools));
  const Json count = parse_body(shared_server().post("/v1/messages/count_tokens", body));
  // In this protocol input_tokens leaves out what came from the cache.
  const Json answer = parse_body(shared_server().post("/v1/messages", body));
  EXPECT_EQ(number_at(count, "input_tokens"),
            number_at(answer, "usage", "input_tokens") + number_at(answer, "usage", "cache_read_input_tokens"));
}

TEST(ServeAnthropic, Mistakes) {
  for (
      const auto& [body, message] :
      {std::pair<std::string, const char*>{"{}", "max_tokens is missing"},
       {R"({"max_tokens": 5})", "messages is missing"},
       {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
        "messages[0].content[0] is of type image"},
       {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search_20250305", "name": "w"}]})",
        "tools[0].type"},
       {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "tool", "name": "w"}})",
        "tool_choice.name"}}) {
    const HttpClient::Answer answer = shared_server().post("/v1/messages", body);
    EXPECT_EQ(answer.status, 400);
    const Json error = parse_body(answer);
    EXPECT_EQ(text_at(error, "type"), "error");
    EXPECT_EQ(text_at(error, "error", "type"), "invalid_request_error");
    EXPECT_NE(text_at(error, "error", "message").find(message), std::string::npos) << answer.body;
  }
}

TEST(ServeResponses, StreamedIsWhole) {
  TestServer& s = shared_server();
  const std::string tools = R"([{"type": "function", "name": "get_weather", "description": "Get the weather of a city.",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}])";
  for (const std::string& more : {std::string(R"("temperature": 0)"), std::string(R"("reasoning": {"effort": "high"})"),
                                  R"("temperature": 0, "tools": )" + tools, std::string(R"("max_output_tokens": 4)")}) {
    const std::string body = R"({"input": "What is the weather in Oslo?", "seed": 4, )" + more;
    const HttpClient::Answer answer = s.post("/v1/responses", body + "}");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json whole = parse_body(answer);
    HttpClient client = s.client();
    const Stream stream = read_stream(client, "/v1/responses", body + R"(, "stream": true})");
    ASSERT_GT(stream.events.size(), 3u);
    EXPECT_EQ(stream.names.front(), "response.created");
    std::string text;
    for (size_t i = 0; i < stream.events.size(); ++i) {
      EXPECT_EQ(number_at(stream.events[i], "sequence_number"), static_cast<int64_t>(i));
      EXPECT_EQ(text_at(stream.events[i], "type"), stream.names[i]);
      if (stream.names[i].ends_with(".delta")) text += text_at(stream.events[i], "delta");
    }
    const Json& last = at(stream.events.back(), "response");
    EXPECT_EQ(text_at(last, "status"), text_at(whole, "status"));
    EXPECT_EQ(number_at(last, "usage", "output_tokens"), number_at(whole, "usage", "output_tokens"));
    std::string said;
    ASSERT_EQ(at(last, "output").as_array()->size(), at(whole, "output").as_array()->size());
    for (const Json& item : *at(whole, "output").as_array())
      said +=
          text_at(item, "type") == "function_call" ? text_at(item, "arguments") : text_at(item, "content", 0, "text");
    EXPECT_EQ(text, said);
  }
}

TEST(ServeResponses, GoesOnFromAStoredOne) {
  TestServer& s = shared_server();
  const Json first = parse_body(s.post(
      "/v1/responses",
      R"({"input": "My name is Anna.", "instructions": "Be kind.", "temperature": 0, "max_output_tokens": 20})"));
  const std::string id = text_at(first, "id");
  const Json second = parse_body(s.post(
      "/v1/responses",
      fmt::format(
          R"({{"input": "What is my name?", "previous_response_id": "{}", "temperature": 0, "max_output_tokens": 20}})",
          id)));
  EXPECT_GT(number_at(second, "usage", "input_tokens"), number_at(first, "usage", "input_tokens"));
  EXPECT_EQ(text_at(parse_body(s.get("/v1/responses/" + id)), "id"), id);
  HttpClient c = s.client();
  EXPECT_EQ(c.request("DELETE", "/v1/responses/" + id).status, 200);
  EXPECT_EQ(s.get("/v1/responses/" + id).status, 404);
  EXPECT_EQ(s.post("/v1/responses", fmt::format(R"({{"input": "x", "previous_response_id": "{}"}})", id)).status, 404);
  const Json unstored =
      parse_body(s.post("/v1/responses", R"({"input": "x", "store": false, "max_output_tokens": 2})"));
  EXPECT_EQ(s.get("/v1/responses/" + text_at(unstored, "id")).status, 404);
}

TEST(ServeResponses, WhatIsNotSupportedIsNamed) {
  for (const auto& [more, message] :
       {std::pair<std::string, const char*>{R"("background": true)", "background is not supported"},
        {R"("include": ["message.output_text.logprobs"])", "include[0] is \"message.output_text.logprobs\""},
        {R"("tools": [{"type": "web_search"}])", "runs no tools of its own"},
        {R"("truncation": "middle")", "truncation is"},
        {R"("conversation": "conv_1")", "conversation is not supported"}}) {
    const HttpClient::Answer answer = shared_server().post("/v1/responses", R"({"input": "x", )" + more + "}");
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(text_at(parse_body(answer), "error", "message").find(message), std::string::npos) << answer.body;
  }
  EXPECT_EQ(shared_server()
                .post("/v1/responses",
                      R"({"input": "x", "max_output_tokens": 1, "include": ["reasoning.encrypted_content"]})")
                .status,
            200);
}

TEST(ServeResponses, StoreIsBounded) {
  ResponseStore store(3, 100'000);
  for (int i = 0; i < 5; ++i) store.put(std::to_string(i), {{}, "body"});
  EXPECT_EQ(store.size(), 3u);
  EXPECT_FALSE(store.get("1"));
  ASSERT_TRUE(store.get("2"));  // and so it is the latest
  store.put("5", {{}, "body"});
  EXPECT_TRUE(store.get("2"));
  EXPECT_FALSE(store.get("3"));
  store.put("large", {{}, std::string(99'900, 'x')});
  EXPECT_EQ(store.size(), 1u);
  store.put("too large", {{}, std::string(200'000, 'x')});
  EXPECT_FALSE(store.get("too large"));
}

}  // namespace
}  // namespace hadal::serve
