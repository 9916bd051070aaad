// The server under clients that are slow, gone, too many or too large, and what it does when it is told to end.
#include <atomic>
#include <future>

#include "base/cpu_features.h"
#include "serve_fixture.h"

namespace hadal::serve {
namespace {

using std::chrono::milliseconds;

const std::string kStory =
    R"({"messages": [{"role": "user", "content": "Tell me a long story."}], "ignore_eos": true, "max_tokens": 3000, "seed": 1, "stream": )";

bool eventually(const std::function<bool()>& holds, double seconds = 60) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
  return holds();
}

TEST(ServeHttp, KeepsConnectionsAndTakesPipelinedRequests) {
  HttpClient c = shared_server().client();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(c.request("GET", "/version").status, 200);
  c.send(
      "GET /version HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: "
      "x\r\nConnection: close\r\n\r\n");
  for (const int status : {200, 404, 200}) {
    EXPECT_EQ(c.read_head().status, status);
    c.read_rest();
  }
  EXPECT_TRUE(eventually([&] { return !c.connected(); }));
}

TEST(ServeHttp, OldAndOddRequests) {
  TestServer& s = shared_server();
  const auto raw = [&](const std::string& bytes) {
    HttpClient c = s.client();
    c.send(bytes);
    const int status = c.read_head().status;
    c.read_rest();
    return status;
  };
  EXPECT_EQ(raw("GET /health HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(raw("garbage\r\n\r\n"), 400);
  EXPECT_EQ(raw("GET / HTTP/9.9\r\n\r\n"), 400);
  EXPECT_EQ(raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"), 400);
  EXPECT_EQ(raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: "
                "chunked\r\n\r\n0\r\n\r\n"),
            400);
  EXPECT_EQ(raw("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"prompt\r\n7\r\n\": "
                "\"a\"}\r\n0\r\n\r\n"),
            200);
  EXPECT_EQ(raw("GET /%68ealth?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
  EXPECT_EQ(raw("GET /health HTTP/1.1\r\n" + std::string("X: ") + std::string(70000, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(raw("DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n"), 405);
  // HTTP/1.0 has no chunks: the stream ends with the connection.
  HttpClient old = s.client();
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "stream": true})";
  old.send(fmt::format("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  EXPECT_TRUE(old.read_head().header("transfer-encoding").empty());
  EXPECT_NE(old.read_rest().find("data: [DONE]\n\n"), std::string::npos);
}

TEST(ServeHttp, ExpectContinueAndSlowBodies) {
  const std::string body = R"({"prompt": "a"})";
  HttpClient c = shared_server().client();
  c.send(fmt::format("POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                     body.size()));
  EXPECT_EQ(c.read_head().status, 100);
  for (const char b : body) {
    c.send({&b, 1});
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(c.read_head().status, 200);
}

// Short times are those of servers of their own: a client of a busy machine may itself be too late for the others.
TEST(ServeHttp, LimitsOfTime) {
  {
    ServerOptions o = test_options();
    o.http.header_time = o.http.body_time = milliseconds(200);
    const TestServer s(o);
    HttpClient header = s.client();
    header.send("GET /hea");
    EXPECT_EQ(header.read_head().status, 408);
    HttpClient body = s.client();
    body.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{");
    EXPECT_EQ(body.read_head().status, 408);
    header.close();
    body.close();
    EXPECT_TRUE(eventually([&] { return s.server.http_stats().connections == 0; }));
  }
  ServerOptions o = test_options();
  o.http.idle_time = milliseconds(200);
  const TestServer s(o);
  HttpClient idle = s.client();
  EXPECT_TRUE(eventually([&] { return !idle.connected(); }));
  EXPECT_TRUE(eventually([&] { return s.server.http_stats().connections == 0; }));
}

TEST(ServeHttp, LimitsOfSize) {
  ServerOptions o = test_options();
  o.http.max_body_bytes = 1000;
  o.http.max_connections = 4;
  const TestServer s(o);
  EXPECT_EQ(s.post("/v1/chat/completions", std::string(1001, ' ')).status, 413);
  EXPECT_EQ(text_at(parse_body(s.post("/v1/messages", std::string(1001, ' '))), "error", "type"), "request_too_large");
  EXPECT_TRUE(eventually([&] { return s.server.http_stats().connections == 0; }));
  {
    HttpClient a = s.client(), b = s.client(), c = s.client(), d = s.client(), e = s.client();
    const HttpClient::Answer refused = e.read_head();
    EXPECT_EQ(refused.status, 503);
    EXPECT_FALSE(refused.header("retry-after").empty());
  }
  EXPECT_TRUE(eventually([&] { return s.server.http_stats().connections == 0; }));
  EXPECT_EQ(s.get("/health").status, 200);
}

TEST(ServeHttp, DisconnectCancelsEverywhere) {
  TestServer& s = shared_server();
  const std::string long_prompt = [] {
    std::string words;
    for (int i = 0; i < 5000; ++i) words += "fox ";
    return words;
  }();
  const std::pair<const char*, std::string> requests[] = {
      {"/v1/chat/completions", kStory + "true}"},
      {"/v1/chat/completions", kStory + "false}"},
      {"/v1/completions", R"({"prompt": ["a", "b", "c"], "ignore_eos": true, "max_tokens": 3000})"},
      {"/v1/completions",
       fmt::format(R"({{"prompt": "{}", "ignore_eos": true, "max_tokens": 1000}})", long_prompt)},  // while it is read
      {"/v1/messages",
       R"({"messages": [{"role": "user", "content": "Story!"}], "max_tokens": 3000, "ignore_eos": true})"},
      {"/v1/messages",
       R"({"messages": [{"role": "user", "content": "Story!"}], "max_tokens": 3000, "ignore_eos": true, "stream": true})"},
      {"/v1/responses", R"({"input": "Story!", "max_output_tokens": 3000, "ignore_eos": true, "stream": true})"},
      {"/v1/responses", R"({"input": "Story!", "max_output_tokens": 3000, "ignore_eos": true})"}};
  for (const bool half : {false, true})
    for (const auto& [path, body] : requests) {
      const int64_t aborted = s.server.http_stats().aborted_exchanges;
      HttpClient c = s.client();
      c.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body));
      ASSERT_TRUE(eventually([&] { return s.server.engine()->stats().running > 0; })) << path;
      if (half)
        c.shut_down_sending();
      else
        c.close();
      EXPECT_TRUE(s.becomes_idle(10)) << path << " goes on without its client: " << body.substr(0, 80);
      EXPECT_EQ(s.server.http_stats().aborted_exchanges, aborted + 1);
    }
}

TEST(ServeHttp, DisconnectWhileWaiting) {
  ServerOptions o = test_options();
  o.engine.max_requests = 1;
  const TestServer s(o);
  HttpClient first = s.client();
  ASSERT_EQ(first.open("POST", "/v1/chat/completions", kStory + "true}").status, 200);
  ASSERT_TRUE(first.next_event());
  HttpClient second = s.client();
  second.send(fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}false}}",
                          kStory.size() + 6, kStory));
  ASSERT_TRUE(eventually([&] { return s.server.engine()->stats().waiting == 1; }));
  second.close();
  EXPECT_TRUE(eventually([&] { return s.server.engine()->stats().waiting == 0; }));
  EXPECT_EQ(s.server.engine()->stats().running, 1) << "the other one goes on";
  first.close();
  EXPECT_TRUE(s.becomes_idle());
}

TEST(ServeHttp, FullQueueSays429) {
  ServerOptions o = test_options();
  o.engine.max_requests = 1;
  o.engine.max_waiting = 1;
  const TestServer s(o);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<HttpClient>("127.0.0.1", s.server.port(), 60));
    clients.back()->open("POST", "/v1/chat/completions", kStory + "true}");
    ASSERT_TRUE(eventually([&] { return s.server.engine()->stats().running == 1; }));
  }
  ASSERT_TRUE(eventually([&] { return s.server.engine()->stats().waiting == 1; }));
  const HttpClient::Answer full = s.post("/v1/chat/completions", kStory + "false}");
  EXPECT_EQ(full.status, 429) << full.body;
  EXPECT_FALSE(full.header("retry-after").empty());
  EXPECT_EQ(text_at(parse_body(full), "error", "code"), "queue_full");
  const HttpClient::Answer anthropic =
      s.post("/v1/messages", R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 5})");
  EXPECT_EQ(anthropic.status, 429);
  EXPECT_EQ(text_at(parse_body(anthropic), "error", "type"), "rate_limit_error");
  clients.clear();
  EXPECT_TRUE(s.becomes_idle());
  EXPECT_EQ(
      s.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})").status,
      200);
}

TEST(ServeHttp, WhatCannotFitSaysBothNumbers) {
  ServerOptions o = test_options();
  o.engine.cache_tokens = 512;
  o.engine.max_requests = 1;
  const TestServer s(o);
  const HttpClient::Answer answer = s.post("/v1/completions", R"({"prompt": "a", "max_tokens": 4000})");
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_NE(answer.body.find("cache pages"), std::string::npos) << answer.body;
  EXPECT_EQ(s.post("/v1/completions", R"({"prompt": "a"})").status, 200) << "without a wish it gets what fits";
}

TEST(ServeHttp, Keys) {
  ServerOptions o = test_options();
  o.service.api_keys = {{"first-key"}, {"second"}};
  const TestServer s(o);
  const std::string body = R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})";
  for (const auto& [headers, status] : {std::pair{HttpHeaders{}, 401},
                                        {HttpHeaders{{"Authorization", "Bearer first-key"}}, 200},
                                        {HttpHeaders{{"authorization", "bearer second"}}, 200},
                                        {HttpHeaders{{"x-api-key", "second"}}, 200},
                                        {HttpHeaders{{"Authorization", "Bearer first-ke"}}, 401},
                                        {HttpHeaders{{"Authorization", "Bearer first-keyy"}}, 401},
                                        {HttpHeaders{{"Authorization", "first-key"}}, 401},
                                        {HttpHeaders{{"Authorization", "Bearer "}}, 401}}) {
    EXPECT_EQ(s.post("/v1/chat/completions", body, headers).status, status);
    EXPECT_EQ(s.get("/v1/models", headers).status, status);
  }
  EXPECT_EQ(text_at(parse_body(s.post("/v1/messages", body)), "error", "type"), "authentication_error");
  for (const char* open : {"/health", "/version", "/"}) EXPECT_EQ(s.get(open).status, 200);
}

TEST(ServeHttp, Cors) {
  const HttpClient::Answer any = shared_server().get("/v1/models", {{"Origin", "http://a.example"}});
  EXPECT_EQ(any.header("access-control-allow-origin"), "*");
  HttpClient c = shared_server().client();
  const HttpClient::Answer preflight =
      c.request("OPTIONS", "/v1/chat/completions", "",
                {{"Origin", "http://a.example"}, {"Access-Control-Request-Headers", "authorization"}});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "authorization");
  ServerOptions o = test_options();
  o.service.allowed_origins = {"http://b.example"};
  const TestServer s(o);
  EXPECT_TRUE(s.get("/health", {{"Origin", "http://a.example"}}).header("access-control-allow-origin").empty());
  EXPECT_EQ(s.get("/health", {{"Origin", "http://b.example"}}).header("access-control-allow-origin"),
            "http://b.example");
}

TEST(ServeHttp, LoadingIsSaid) {
  const ServerOptions o = test_options();
  Server server(o);  // not loaded
  HttpClient c("127.0.0.1", server.port());
  EXPECT_EQ(c.request("GET", "/health").status, 503);
  EXPECT_EQ(c.request("POST", "/v1/chat/completions", "{}").status, 503);
  EXPECT_EQ(c.request("GET", "/version").status, 200);
  server.load();
  EXPECT_EQ(c.request("GET", "/health").status, 200);
}

TEST(ServeHttp, RequestIdsComeBack) {
  EXPECT_EQ(shared_server().get("/health", {{"X-Request-Id", "abc-1"}}).header("x-request-id"), "abc-1");
  const std::string made(shared_server().get("/health", {{"X-Request-Id", "a b"}}).header("x-request-id"));
  EXPECT_EQ(made.size(), 16u);
}

TEST(ServeHttp, SlowReaderIsDroppedAndOthersGoOn) {
  ServerOptions o = test_options();
  o.http.max_unsent_bytes = 20'000;
  const TestServer s(o);
  // Its receive buffer is small, and it reads nothing.
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 3; ++i) {
    slow.push_back(std::make_unique<HttpClient>("127.0.0.1", s.server.port(), 60, 4096));
    const std::string body =
        R"({"prompt": "a", "ignore_eos": true, "max_tokens": 4000, "logprobs": 20, "stream": true})";
    slow.back()->send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  }
  EXPECT_EQ(s.post("/v1/completions", R"({"prompt": "a", "max_tokens": 50})").status, 200);
  EXPECT_TRUE(eventually([&] { return s.server.http_stats().slow_clients_dropped == 3; }, 120));
  EXPECT_TRUE(s.becomes_idle());
}

TEST(ServeHttp, DrainFinishesWhatRuns) {
  TestServer s;
  HttpClient idle = s.client();
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  HttpClient c = s.client();
  ASSERT_EQ(
      c.open(
           "POST", "/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "hi"}], "ignore_eos": true, "max_tokens": 300, "stream": true})")
          .status,
      200);
  ASSERT_TRUE(c.next_event());
  std::future<int64_t> cut = std::async(std::launch::async, [&] { return s.server.shut_down(); });
  bool done = false;
  while (const auto event = c.next_event()) done = event->data == "[DONE]";
  EXPECT_TRUE(done);
  EXPECT_EQ(cut.get(), 0);
  EXPECT_FALSE(idle.connected());
  EXPECT_THROW(s.client(), Error);
}

// The client has its answer and is gone, and nothing else is to be done, when the handler lets go.
TEST(ServeHttp, DrainSeesAnExchangeThatIsLetGoLate) {
  std::promise<std::shared_ptr<Exchange>> handled;
  HttpServerOptions o;
  o.port = 0;
  HttpServer server(
      o,
      [&](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
        exchange->respond({});
        handled.set_value(exchange);
      },
      [](int, const std::string&, std::string_view) { return HttpResponse{}; });
  EXPECT_EQ(HttpClient("127.0.0.1", server.port()).request("GET", "/").status, 200);
  std::shared_ptr<Exchange> exchange = handled.get_future().get();
  ASSERT_TRUE(eventually([&] { return server.stats().connections == 0; }));
  std::future<bool> drained = std::async(std::launch::async, [&] { return server.drain(std::chrono::seconds(20)); });
  ASSERT_TRUE(eventually([&] {
    try {
      HttpClient("127.0.0.1", server.port());
    } catch (const Error&) { return true; }
    return false;
  }));
  ASSERT_TRUE(eventually([&] { return server.stats().connections == 0; }));
  EXPECT_EQ(server.stats().exchanges, 1);
  exchange.reset();
  EXPECT_TRUE(drained.get());
}

TEST(ServeHttp, DrainTellsWhatItCutsOff) {
  ServerOptions o = test_options();
  o.shutdown_time = milliseconds(50);
  TestServer s(o);
  HttpClient c = s.client();
  ASSERT_EQ(
      c.open(
           "POST", "/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "hi"}], "ignore_eos": true, "max_tokens": 8000, "stream": true})")
          .status,
      200);
  ASSERT_TRUE(c.next_event());
  EXPECT_EQ(s.server.shut_down(), 1);
  std::string last;
  while (const auto event = c.next_event())
    if (event->data != "[DONE]") last = event->data;
  EXPECT_NE(last.find("shutting down"), std::string::npos) << last;
}

TEST(ServeHttp, ManyStreamsAndSomeThatDrop) {
  ServerOptions o = test_options();
  o.engine.max_requests = 32;
  const TestServer s(o);
  std::atomic<int> complete{0}, dropped{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 64; ++t)
    threads.emplace_back([&, t] {
      HttpClient c("127.0.0.1", s.server.port(), 120);
      for (int i = 0; i < 3; ++i) {
        const std::string body = fmt::format(
            R"({{"prompt": "The {}", "ignore_eos": true, "max_tokens": 20, "seed": {}, "stream": true}})", t, i);
        ASSERT_EQ(c.open("POST", "/v1/completions", body).status, 200);
        int events = 0;
        bool done = false;
        while (const auto event = c.next_event()) {
          done = event->data == "[DONE]";
          if (++events == 3 && (t * 3 + i) % 10 == 0) {
            ++dropped;
            return c.close();
          }
        }
        complete += done;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_GT(dropped, 0);
  EXPECT_GT(complete, 100);
  EXPECT_TRUE(s.becomes_idle());
}

TEST(ServeHttp, MetricsAreWellFormed) {
  TestServer& s = shared_server();
  s.post("/v1/completions", R"({"prompt": "a", "max_tokens": 5, "ignore_eos": true})");
  ASSERT_TRUE(s.becomes_idle());
  const HttpClient::Answer answer = s.get("/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
  std::map<std::string, std::string> types;
  std::istringstream lines(answer.body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      const size_t blank = line.find(' ', 7);
      EXPECT_TRUE(types.emplace(line.substr(7, blank - 7), line.substr(blank + 1)).second) << "twice: " << line;
      continue;
    }
    if (line.starts_with("#")) continue;
    std::string name = line.substr(0, line.find('{'));
    for (const char* suffix : {"_bucket", "_sum", "_count"})
      if (!types.contains(name) && name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
    EXPECT_TRUE(types.contains(name)) << line;
    EXPECT_NE(line.find("model_name=\"tiny\""), std::string::npos) << line;
  }
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds", "vllm:request_success_total"})
    EXPECT_TRUE(types.contains(name)) << name;
  EXPECT_NE(answer.body.find(fmt::format("backend=\"cpu ({}, ", to_string(process_isa()))), std::string::npos);
  EXPECT_EQ(answer.body.find("vllm:generation_tokens_total{model_name=\"tiny\"} 0\n"), std::string::npos);
}

}  // namespace
}  // namespace hadal::serve
