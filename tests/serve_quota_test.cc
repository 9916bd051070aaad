// Quotas of keys, and the records that the server keeps of its requests.
#include <array>
#include <atomic>
#include <fstream>
#include <sstream>

#include "serve/api_keys.h"
#include "serve_fixture.h"

namespace hadal::serve {
namespace {

using std::chrono::seconds;

// Seconds that the refusal asks for; 0 when there was none, and then the request keeps what it was given.
int refused(Quota& quota, int64_t tokens, Quota::Clock::time_point at,
            std::vector<std::unique_ptr<Quota::Charge>>& kept) {
  try {
    kept.push_back(quota.charge(tokens, at));
    return 0;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 429);
    EXPECT_EQ(error.code, "rate_limit_exceeded");
    return error.retry_after;
  }
}

TEST(Quota, RequestsFillUpEvenly) {
  const auto quota = std::make_shared<Quota>(ApiKey{"k", 6, 0});
  const auto start = Quota::Clock::now() + seconds(1);
  std::vector<std::unique_ptr<Quota::Charge>> kept;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(refused(*quota, 1 << 30, start, kept), 0);
  EXPECT_EQ(refused(*quota, 1, start, kept), 10);
  EXPECT_EQ(refused(*quota, 1, start + seconds(7), kept), 3);
  // A moment too early is a refusal that says when, too.
  EXPECT_EQ(refused(*quota, 1, start + seconds(10) - std::chrono::microseconds(500), kept), 1);
  EXPECT_EQ(refused(*quota, 1, start + seconds(10), kept), 0);
  EXPECT_EQ(refused(*quota, 1, start + seconds(10), kept), 10);
  kept.pop_back();  // it used nothing, hence was none
  EXPECT_EQ(refused(*quota, 1, start + seconds(10), kept), 0);
}

TEST(Quota, TokensThatWereNotUsedComeBack) {
  const auto quota = std::make_shared<Quota>(ApiKey{"k", 0, 600});
  const auto start = Quota::Clock::now() + seconds(1);
  std::vector<std::unique_ptr<Quota::Charge>> kept;
  EXPECT_EQ(refused(*quota, 500, start, kept), 0);
  EXPECT_EQ(refused(*quota, 150, start, kept), 5);  // 100 are left, 10 come a second
  kept.back()->use(50);
  kept.clear();
  EXPECT_EQ(refused(*quota, 550, start, kept), 0);
  EXPECT_EQ(refused(*quota, 1, start, kept), 1);
  // More than a minute's worth: when all of that is there, and others wait until it is paid.
  kept.back()->use(550);
  kept.clear();
  EXPECT_EQ(refused(*quota, 1200, start + seconds(59), kept), 1);
  EXPECT_EQ(refused(*quota, 1200, start + seconds(60), kept), 0);
  kept.back()->use(1200);
  kept.clear();
  EXPECT_EQ(refused(*quota, 60, start + seconds(60), kept), 66);
}

TEST(ServeQuota, EachKeyHasItsOwn) {
  ServerOptions o = test_options();
  o.service.api_keys = {{"two", 2, 0}, {"tokens", 0, 100}, {"free"}};
  const TestServer s(o);
  const std::string body = R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "ignore_eos": true})";
  const HttpHeaders two{{"x-api-key", "two"}}, tokens{{"x-api-key", "tokens"}}, free{{"x-api-key", "free"}};
  // What is wrong does not count, and what generates nothing neither.
  EXPECT_EQ(s.post("/v1/messages", "{}", two).status, 400);
  EXPECT_EQ(s.get("/v1/models", two).status, 200);
  EXPECT_EQ(s.post("/tokenize", R"({"prompt": "x"})", two).status, 200);
  const auto begin = std::chrono::steady_clock::now();
  for (const char* path : {"/v1/chat/completions", "/v1/messages"}) EXPECT_EQ(s.post(path, body, two).status, 200);
  const HttpClient::Answer openai = s.post("/v1/chat/completions", body, two),
                           anthropic = s.post("/v1/messages", body, two);
  for (const HttpClient::Answer* answer : {&openai, &anthropic}) {
    EXPECT_EQ(answer->status, 429) << answer->body;
    // The first comes back 30 s after it was used.
    const seconds wait(std::atoi(std::string(answer->header("retry-after")).c_str()));
    EXPECT_GE(std::chrono::steady_clock::now() + wait, begin + seconds(30));
    EXPECT_LE(wait, seconds(30));
    EXPECT_EQ(text_at(parse_body(*answer), "error", "type"), "rate_limit_error");
    EXPECT_NE(text_at(parse_body(*answer), "error", "message").find("2 requests a minute"), std::string::npos);
  }
  EXPECT_EQ(text_at(parse_body(openai), "error", "code"), "rate_limit_exceeded");
  EXPECT_EQ(text_at(parse_body(anthropic), "type"), "error");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(s.post("/v1/messages", body, free).status, 200);

  // Answers that end early give back what they did not use.
  const std::string many =
      R"({"prompt": "x", "max_tokens": 60, "n": 1, "temperature": 0, "stop": ["e", "a", "o", "i", "t"]})";
  int64_t used = 0;
  while (used < 30) {
    const HttpClient::Answer answer = s.post("/v1/completions", many, tokens);
    ASSERT_EQ(answer.status, 200) << answer.body << ", used so far: " << used;
    used += number_at(parse_body(answer), "usage", "total_tokens");
  }
  const HttpClient::Answer large = s.post("/v1/completions", R"({"prompt": "x", "max_tokens": 90})", tokens);
  EXPECT_EQ(large.status, 429);
  EXPECT_NE(large.body.find("100 tokens a minute"), std::string::npos) << large.body;
  EXPECT_NE(s.get("/metrics", free).body.find("hadal_http_over_quota_requests_total{model_name=\"tiny\"} 3"),
            std::string::npos);
}

// Clients of a used up quota beside others, over every protocol, streamed or not: an answer is whole, or a refusal of its
// protocol's shape that says when to come back; nobody gets more than his share, and the others notice nothing.
TEST(ServeQuota, RefusalsUnderLoad) {
  ServerOptions o = test_options();
  o.service.api_keys = {{"requests", 3, 0}, {"tokens", 0, 60}, {"free"}};
  const TestServer s(o);
  struct Kind {
    const char *path, *body;
  };
  constexpr std::array<Kind, 4> kinds{{
      {"/v1/chat/completions", R"("messages": [{"role": "user", "content": "x"}], "max_tokens": 4)"},
      {"/v1/completions", R"("prompt": "x", "max_tokens": 4)"},
      {"/v1/messages", R"("messages": [{"role": "user", "content": "x"}], "max_tokens": 4)"},
      {"/v1/responses", R"("input": "x", "max_output_tokens": 4)"},
  }};
  std::atomic<int> refusals{0}, poor_answers{0};
  std::atomic<int64_t> tokens{0};
  const auto start = std::chrono::steady_clock::now();
  const auto client = [&](const std::string& key, int first, int requests) {
    HttpClient connection = s.client();  // one for all: behind a refusal it goes on
    for (int i = first; i < first + requests; ++i) {
      const Kind& kind = kinds[static_cast<size_t>(i) % kinds.size()];
      const bool stream = i / 4 % 2 == 1;
      const HttpClient::Answer answer =
          connection.request("POST", kind.path, fmt::format(R"({{{}, "stream": {}}})", kind.body, stream),
                             {{"authorization", "Bearer " + key}});
      const std::string what = key + " " + kind.path + " " + answer.body;
      if (answer.status == 200) {
        if (key == "requests") ++poor_answers;
        if (key == "tokens" && !stream) {
          const Json whole = parse_body(answer);
          const Json& usage = at(whole, "usage");
          for (const char* part : {"prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"})
            if (const Json* count = usage.find(part)) tokens += count->as_integer().value_or(0);
        }
        EXPECT_TRUE(answer.header("content-type").starts_with(stream ? "text/event-stream" : "application/json"))
            << what;
        continue;
      }
      ++refusals;
      ASSERT_EQ(answer.status, 429) << what;
      EXPECT_NE(key, "free") << what;
      EXPECT_TRUE(answer.header("content-type").starts_with("application/json")) << what;
      EXPECT_FALSE(answer.header("x-request-id").empty()) << what;
      const int wait = std::atoi(std::string(answer.header("retry-after")).c_str());
      EXPECT_TRUE(wait >= 1 && wait <= 60) << wait << " " << what;
      const Json body = parse_body(answer);
      EXPECT_EQ(text_at(body, "error", "type"), "rate_limit_error") << what;
      EXPECT_NE(text_at(body, "error", "message").find(key + " a minute"), std::string::npos) << what;
      if (std::string_view(kind.path) == "/v1/messages") {
        EXPECT_EQ(text_at(body, "type"), "error") << what;
        EXPECT_EQ(text_at(body, "request_id"), answer.header("request-id")) << what;
      } else {
        EXPECT_EQ(text_at(body, "error", "code"), "rate_limit_exceeded") << what;
      }
    }
  };
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 2; ++i) {
      clients.emplace_back(client, "free", i, 8);
      clients.emplace_back(client, "requests", i, 16);
      clients.emplace_back(client, "tokens", i, 16);
    }
  }
  const double minutes =
      std::chrono::duration<double, std::ratio<60>>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(poor_answers, 3);
  EXPECT_LE(poor_answers, 3 * (1 + minutes));
  EXPECT_LE(static_cast<double>(tokens), 60 * (1 + minutes));
  EXPECT_GT(refusals, 0);
  EXPECT_TRUE(s.becomes_idle());
  EXPECT_NE(
      s.get("/metrics", {{"x-api-key", "free"}})
          .body.find(fmt::format("hadal_http_over_quota_requests_total{{model_name=\"tiny\"}} {}\n", refusals.load())),
      std::string::npos);
}

TEST(ServeTrace, HasEveryRequest) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / fmt::format("hadal-trace-{}", ::getpid());
  {
    ServerOptions o = test_options();
    o.service.trace_file = file.string();
    const TestServer s(o);
    s.post("/v1/completions", R"({"prompt": "Once", "max_tokens": 5, "ignore_eos": true, "n": 2})",
           {{"x-request-id", "one"}});
    s.post("/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "ignore_eos": true})",
           {{"x-request-id", "two"}});
    EXPECT_EQ(s.post("/v1/completions", "{}").status, 400);  // never came to the engine
  }
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  std::map<std::string, int> events;
  const Json trace = Json::parse_strict(text.str());
  for (const Json& e : *trace.as_array()) {
    if (text_at(e, "ph") != "X") continue;
    ++events[text_at(e, "args", "request") + " " + text_at(e, "name")];
    EXPECT_GE(std::strtod(text_at(e, "dur").c_str(), nullptr), 0);
    if (text_at(e, "name") == "request") { EXPECT_EQ(text_at(e, "args", "outcome"), "length"); }
  }
  const std::map<std::string, int> expected{
      {"one decode", 1}, {"one prefill", 1}, {"one queue", 1}, {"one request", 1}, {"one step", 8},
      {"two decode", 1}, {"two prefill", 1}, {"two queue", 1}, {"two request", 1}, {"two step", 2}};
  EXPECT_EQ(events, expected);
}

TEST(ServeTrace, AFileThatCannotBeWrittenIsAnError) {
  ServerOptions o = test_options();
  o.service.trace_file = "/nonexistent/trace.json";
  EXPECT_THROW(Server{o}, Error);
}

}  // namespace
}  // namespace hadal::serve
