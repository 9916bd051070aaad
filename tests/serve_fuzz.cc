// A structure-aware fuzzer of the server: valid requests with faults put in, at every level from bytes to meanings. Every
// answer must be HTTP, and JSON or server-sent events of JSON; no status but the expected ones; and at the end nothing runs
// and all pages are free. hadal_serve_fuzz --requests N [--seconds T] [--seed S] [--connections C]; it ends when
// either is reached.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>

#include "base/log.h"
#include "serve_fixture.h"

namespace hadal::serve {
namespace {

using Random = std::mt19937_64;
size_t below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }
bool chance(Random& random, int percent) { return below(random, 100) < static_cast<size_t>(percent); }
template <typename T, size_t N>
const T& pick(Random& random, const T (&from)[N]) {
  return from[below(random, N)];
}

std::string any_text(Random& random) {
  static constexpr const char* kTexts[] = {"",
                                           "hi",
                                           "What is the capital of France?",
                                           "<think>",
                                           "</think>",
                                           "<｜DSML｜ calls>",
                                           "<｜end▁of▁sentence｜>",
                                           "\\u0000",
                                           "é",
                                           "日本語",
                                           "😀",
                                           "\\ud800",
                                           "\\ud83d\\ude00",
                                           "\\n\\n",
                                           "a\\\"b",
                                           "\\\\",
                                           " ",
                                           "%s%n",
                                           "../..",
                                           "{}",
                                           "null",
                                           "\\u202e"};
  std::string text = pick(random, kTexts);
  if (chance(random, 1)) text += std::string(below(random, 3000), 'x');  // costs the most by far
  return "\"" + text + "\"";
}

std::string any_value(Random& random, int depth = 0) {
  static constexpr const char* kValues[] = {"null",
                                            "true",
                                            "false",
                                            "0",
                                            "-0",
                                            "1",
                                            "-1",
                                            "1.5",
                                            "1e5",
                                            "1e308",
                                            "1e309",
                                            "-1e-400",
                                            "18446744073709551616",
                                            "9223372036854775807",
                                            "-9223372036854775808",
                                            "0.1",
                                            "[]",
                                            "{}",
                                            "100000000000000000000000000000000",
                                            "NaN",
                                            "2147483648",
                                            "\"auto\"",
                                            "\"none\""};
  switch (below(random, 6)) {
    case 0: return any_text(random);
    case 1:
      if (depth < 4) {
        std::string list = "[";
        for (size_t i = below(random, 4); i > 0; --i) list += any_value(random, depth + 1) + (i > 1 ? "," : "");
        return list + "]";
      }
      return "[]";
    case 2:
      if (depth < 4) return "{" + any_text(random) + ":" + any_value(random, depth + 1) + "}";
      return "{}";
    default: return pick(random, kValues);
  }
}

struct Field {
  const char* name;
  std::string (*good)(Random&);
};

std::string number(Random& random, double low, double high) {
  return fmt::format("{:.3f}", low + (high - low) * static_cast<double>(random() % 1001) / 1000);
}

const Field kSampling[] = {
    {"temperature", [](Random& r) { return number(r, 0, 2); }},
    {"top_p", [](Random& r) { return number(r, 0.01, 1); }},
    {"top_k", [](Random& r) { return std::to_string(below(r, 50)); }},
    {"min_p", [](Random& r) { return number(r, 0, 1); }},
    {"seed", [](Random& r) { return std::to_string(below(r, 1000)); }},
    {"presence_penalty", [](Random& r) { return number(r, -2, 2); }},
    {"frequency_penalty", [](Random& r) { return number(r, -2, 2); }},
    {"repetition_penalty", [](Random& r) { return number(r, 0.5, 2); }},
    {"logit_bias", [](Random& r) { return fmt::format("{{\"{}\": {}}}", below(r, 9000), number(r, -100, 100)); }},
    {"stop", [](Random& r) { return chance(r, 50) ? any_text(r) : "[" + any_text(r) + "]"; }},
    {"stop_token_ids", [](Random& r) { return fmt::format("[{}]", below(r, 8192)); }},
    {"ignore_eos", [](Random& r) { return std::string(chance(r, 50) ? "true" : "false"); }},
    {"min_tokens", [](Random& r) { return std::to_string(below(r, 5)); }},
    {"priority", [](Random& r) { return std::to_string(below(r, 5)); }},
    {"n", [](Random& r) { return std::to_string(1 + below(r, 3)); }},
    {"include_stop_str_in_output", [](Random&) { return std::string("true"); }},
    {"skip_special_tokens", [](Random&) { return std::string("false"); }},
    {"stream", [](Random&) { return std::string("true"); }},
    {"user", any_text},
    {"model", [](Random& r) { return chance(r, 90) ? std::string("\"tiny\"") : any_text(r); }},
};
const Field kChat[] = {
    {"logprobs", [](Random&) { return std::string("true"); }},
    {"top_logprobs", [](Random& r) { return std::to_string(below(r, 21)); }},
    {"reasoning_effort",
     [](Random& r) {
       return std::string(pick(r, {"\"low\"", "\"none\"", "\"high\"", "\"max\"", "7"}));
     }},
    {"thinking", [](Random&) { return std::string(R"({"type": "enabled"})"); }},
    {"chat_template_kwargs", [](Random&) { return std::string(R"({"thinking": true, "drop_thinking": false})"); }},
    {"stream_options",
     [](Random&) { return std::string(R"({"include_usage": true, "continuous_usage_stats": true})"); }},
    {"tools",
     [](Random& r) {
       return R"([{"type": "function", "function": {"name": "f)" + std::to_string(below(r, 3)) +
              R"(", "parameters": {"type": "object", "properties": {"a": )" + any_value(r) + "}}}}]";
     }},
    {"tool_choice",
     [](Random& r) {
       return std::string(
           pick(r, {"\"auto\"", "\"none\"", "\"required\"", R"({"type": "function", "function": {"name": "f1"}})"}));
     }},
    {"response_format",
     [](Random& r) {
       return std::string(
           pick(r, {R"({"type": "text"})", R"({"type": "json_object"})",
                    R"({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}})"}));
     }},
    {"response_format",
     [](Random& r) {
       std::string pattern;
       for (size_t i = below(r, 12); i > 0; --i)
         pattern +=
             pick(r, {"a", "[a-m]", ".", "(", ")", "|", "*", "+", "?", "{3}", "{0,40}", "{900}", "^", "$", "\\\\d"});
       return fmt::format(
           R"({{"type": "json_schema", "json_schema": {{"name": "x", "schema": {{"type": "string", "pattern": "{}"}}}}}})",
           pattern);
     }},
    {"parallel_tool_calls", [](Random&) { return std::string("false"); }},
};

std::string messages(Random& random) {
  static constexpr const char* kRoles[] = {
      "user", "user", "user", "assistant", "system", "tool", "developer", "latest_reminder", "robot"};
  std::string list = "[";
  const size_t count = below(random, 4) + (chance(random, 95) ? 1 : 0);
  for (size_t i = 0; i < count; ++i) {
    std::string m = fmt::format("{}{{\"role\": \"{}\", \"content\": {}", i ? "," : "", pick(random, kRoles),
                                chance(random, 70)   ? any_text(random)
                                : chance(random, 70) ? "[{\"type\": \"text\", \"text\": " + any_text(random) + "}]"
                                                     : any_value(random));
    if (chance(random, 10))
      m += R"(, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": )" +
           any_text(random) + "}}]";
    if (chance(random, 10)) m += ", \"tool_call_id\": " + any_text(random);
    if (chance(random, 5)) m += ", \"prefix\": true";
    if (chance(random, 10)) m += ", \"reasoning_content\": " + any_text(random);
    list += m + "}";
  }
  return list + "]";
}

struct Made {
  std::string method = "POST", path, body;
  HttpHeaders headers;
};

Made make_request(Random& random) {
  static constexpr const char* kPaths[] = {
      "/v1/chat/completions", "/v1/chat/completions",      "/v1/completions", "/v1/messages",
      "/v1/responses",        "/v1/messages/count_tokens", "/tokenize",       "/detokenize"};
  Made made;
  made.path = pick(random, kPaths);
  std::vector<std::pair<std::string, std::string>> fields;
  for (int i = static_cast<int>(below(random, 5)); i > 0; --i) {
    const Field& f =
        chance(random, 60) ? kSampling[below(random, std::size(kSampling))] : kChat[below(random, std::size(kChat))];
    fields.emplace_back(f.name, f.good(random));
  }
  if (made.path == "/v1/completions" || made.path == "/tokenize")
    fields.emplace_back("prompt", chance(random, 80)   ? any_text(random)
                                  : chance(random, 50) ? "[[1,2,3],[4]]"
                                                       : any_value(random));
  else if (made.path == "/detokenize")
    fields.emplace_back("tokens", chance(random, 80) ? "[1,2,3,500]" : any_value(random));
  else if (made.path == "/v1/responses")
    fields.emplace_back("input", chance(random, 60) ? any_text(random) : messages(random));
  else
    fields.emplace_back("messages", messages(random));
  // Answers are short: it is the requests that are tested.
  fields.emplace_back(made.path == "/v1/responses" ? "max_output_tokens" : "max_tokens",
                      std::to_string(1 + below(random, 6)));
  if (made.path == "/v1/completions" && chance(random, 20)) fields.emplace_back("echo", "true");
  if (chance(random, 25)) fields[below(random, fields.size())].second = any_value(random);  // a wrong value
  if (chance(random, 5)) fields.emplace_back(fields[0]);                                    // a repeated key
  if (chance(random, 10)) fields.emplace_back("unknown", any_value(random));
  std::sort(fields.begin(), fields.end());
  if (!chance(random, 5))
    fields.erase(
        std::unique(fields.begin(), fields.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
        fields.end());
  std::shuffle(fields.begin(), fields.end(), random);
  made.body = "{";
  for (size_t i = 0; i < fields.size(); ++i)
    made.body += fmt::format("{}\"{}\": {}", i ? ", " : "", fields[i].first, fields[i].second);
  made.body += "}";
  if (chance(random, 8) && !made.body.empty()) {  // damaged bytes
    for (size_t k = 1 + below(random, 4); k > 0; --k) {
      const size_t place = below(random, made.body.size());
      switch (below(random, 3)) {
        case 0: made.body[place] = static_cast<char>(random()); break;
        case 1: made.body.insert(place, 1, static_cast<char>(random())); break;
        default: made.body.resize(place + 1);
      }
    }
  }
  if (chance(random, 1)) made.body = std::string(below(random, 2000), chance(random, 50) ? '[' : '{');
  if (chance(random, 5))
    made.headers.emplace_back("X-Request-Id",
                              std::string(below(random, 200), static_cast<char>(33 + below(random, 90))));
  if (chance(random, 5)) made.headers.emplace_back("Origin", "http://x.example");
  if (chance(random, 2)) made.method = pick(random, {"GET", "PUT", "DELETE", "OPTIONS", "HEAD"});
  return made;
}

class Failure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check_answer(HttpClient& client, const HttpClient::Answer& head, const Made& made) {
  static constexpr int kExpected[] = {200, 204, 400, 404, 405, 408, 413, 429, 431};
  if (std::find(std::begin(kExpected), std::end(kExpected), head.status) == std::end(kExpected))
    throw Failure(fmt::format("status {}: {}", head.status, client.read_rest()));
  if (made.method == "HEAD" || head.status == 204) return;
  if (head.header("content-type").starts_with("text/event-stream")) {
    while (const auto event = client.next_event()) {
      if (event->data == "[DONE]") continue;
      const Json chunk = Json::parse_strict(event->data);
      if (chunk.find("error") != nullptr && !chunk.find("error")->is_null())
        throw Failure("an error in a stream: " + event->data);
    }
    return;
  }
  const Json body = Json::parse_strict(client.read_rest());
  if (head.status >= 400 && (body.find("error") == nullptr || body.find("error")->find("message") == nullptr))
    throw Failure("an error without a message: " + body.dump());
}

void client_loop(int port, uint64_t seed, const std::atomic<bool>& over, std::atomic<int64_t>& left,
                 std::atomic<int64_t>& statuses_2xx, std::atomic<int>& failures) {
  Random random(seed);
  std::unique_ptr<HttpClient> client;
  while (!over && failures <= 10 && left-- > 0) {
    const Made made = make_request(random);
    try {
      if (!client || !client->connected())
        client = std::make_unique<HttpClient>("127.0.0.1", port, 600);  // it may run beside everything else
      const int manner = static_cast<int>(below(random, 100));
      std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n", made.method, made.path);
      for (const auto& [name, value] : made.headers) head += fmt::format("{}: {}\r\n", name, value);
      if (manner == 0) {  // leaves in the middle of its request
        client->send(head.substr(0, below(random, head.size())));
        client.reset();
        continue;
      }
      if (manner == 1) {  // says more than it sends
        client->send(head + fmt::format("Content-Length: {}\r\n\r\n", made.body.size() + 10) + made.body);
        client.reset();
        continue;
      }
      if (manner == 2) {  // no HTTP
        std::string noise(1 + below(random, 300), 'x');
        for (char& c : noise) c = static_cast<char>(random());
        client->send(noise + "\r\n\r\n");
        client.reset();
        continue;
      }
      if (manner < 8) {  // in chunks
        client->send(head + "Transfer-Encoding: chunked\r\n\r\n");
        for (size_t at = 0; at < made.body.size();) {
          const size_t n = std::min(made.body.size() - at, 1 + below(random, 100));
          client->send(fmt::format("{:x}\r\n{}\r\n", n, made.body.substr(at, n)));
          at += n;
        }
        client->send("0\r\n\r\n");
      } else if (manner < 12) {  // slowly
        const std::string all = head + fmt::format("Content-Length: {}\r\n\r\n", made.body.size()) + made.body;
        const size_t half = below(random, all.size());
        client->send(std::string_view(all).substr(0, half));
        std::this_thread::sleep_for(std::chrono::milliseconds(below(random, 5)));
        client->send(std::string_view(all).substr(half));
      } else {
        client->send(head + fmt::format("Content-Length: {}\r\n\r\n", made.body.size()) + made.body);
      }
      if (manner > 95) {  // does not wait for the answer
        std::this_thread::sleep_for(std::chrono::milliseconds(below(random, 10)));
        client.reset();
        continue;
      }
      const HttpClient::Answer answer = client->read_head();
      check_answer(*client, answer, made);
      statuses_2xx += answer.status < 300;
      if (made.method == "HEAD") client.reset();  // simpler than to know the length
    } catch (const std::exception& error) {
      ++failures;
      std::fprintf(stderr, "FAILED (seed %llu): %s\n  %s %s\n  %s\n", static_cast<unsigned long long>(seed),
                   error.what(), made.method.c_str(), made.path.c_str(), made.body.substr(0, 2000).c_str());
      client.reset();
    }
  }
}

int fuzz(int64_t requests, double most_seconds, uint64_t seed, int connections) {
  ServerOptions o = test_options();
  o.engine.max_waiting = 64;
  o.service.default_max_tokens = 16;  // where a fault hits the field's name
  const TestServer s(o);
  std::atomic<int64_t> left{requests}, good{0};
  std::atomic<int> failures{0};
  std::atomic<bool> over{false};
  const auto start = std::chrono::steady_clock::now();
  const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::vector<std::thread> threads;
  for (int i = 0; i < connections; ++i)
    threads.emplace_back(client_loop, s.server.port(), seed * 1000 + static_cast<uint64_t>(i), std::cref(over),
                         std::ref(left), std::ref(good), std::ref(failures));
  std::thread clock([&] {
    while (!over && since() < most_seconds) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    over = true;
  });
  for (std::thread& t : threads) t.join();
  over = true;
  clock.join();
  const int64_t sent = requests - std::max<int64_t>(0, left);
  const bool idle = s.becomes_idle(60);
  if (!idle) std::fprintf(stderr, "FAILED: the server is not idle at the end\n");
  std::printf("%lld requests, %lld answered with 200, %d failures, %.1f s%s\n", static_cast<long long>(sent),
              static_cast<long long>(good.load()), failures.load(), since(), idle ? "" : ", not idle at the end");
  // A fuzzer that is always refused tests nothing.
  return failures == 0 && idle && good > sent / 10 ? 0 : 1;
}

}  // namespace
}  // namespace hadal::serve

int main(int argc, char** argv) {
  int64_t requests = 2000;
  double seconds = 1e9;
  uint64_t seed = 1;
  int connections = 8;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const long long value = std::atoll(argv[i + 1]);
    if (flag == "--requests") requests = value;
    if (flag == "--seconds") seconds = static_cast<double>(value);
    if (flag == "--seed") seed = static_cast<uint64_t>(value);
    if (flag == "--connections") connections = static_cast<int>(value);
  }
  hadal::log::set_level(spdlog::level::err);
  return hadal::serve::fuzz(requests, seconds, seed, connections);
}
