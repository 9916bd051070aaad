// A real server on a free port of 127.0.0.1, with the embedded model, for the tests of the protocols.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "serve/http_client.h"
#include "serve/server.h"
#include "text/json.h"

namespace hadal::serve {

using text::Json;

inline ServerOptions test_options() {
  ServerOptions o;
  o.http.port = 0;
  o.engine.model = std::filesystem::path(HADAL_SOURCE_DIR) / "models/hadal-tiny";
  o.engine.threads = 1;
  o.engine.max_requests = 8;
  o.service.names = {"tiny", "another-name"};
  o.service.log_requests = false;
  o.shutdown_time = std::chrono::seconds(20);
  return o;
}

struct TestServer {
  explicit TestServer(ServerOptions options = test_options()) : server(std::move(options)) { server.load(); }
  Server server;

  HttpClient client() const { return HttpClient("127.0.0.1", server.port(), 120); }
  HttpClient::Answer post(const std::string& path, const std::string& body, const HttpHeaders& headers = {}) const {
    HttpClient c("127.0.0.1", server.port(), 120);
    return c.request("POST", path, body, headers);
  }
  HttpClient::Answer get(const std::string& path, const HttpHeaders& headers = {}) const {
    HttpClient c("127.0.0.1", server.port(), 120);
    return c.request("GET", path, {}, headers);
  }
  // Every page of the cache is free again, and nothing runs.
  bool idle() const {
    const EngineStats s = server.engine()->stats();
    return s.running == 0 && s.waiting == 0 && s.free_cache_tokens == s.cache_tokens &&
           server.http_stats().exchanges == 0;
  }
  bool becomes_idle(double seconds = 60) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!idle() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return idle();
  }
};

// One server for all tests that need no options of their own: loading takes longer than most of them.
inline TestServer& shared_server() {
  static TestServer server;
  return server;
}

// A walk into a JSON value: at(answer, "choices", 0, "message", "content"). Into a temporary only within one expression.
inline const Json& at(const Json& value) { return value; }  // NOLINT(bugprone-return-const-ref-from-parameter)
template <typename... Rest>
const Json& at(const Json& value, int index, Rest... rest);
template <typename... Rest>
const Json& at(const Json& value, const char* key, Rest... rest) {
  const Json* member = value.find(key);
  if (member == nullptr) throw std::runtime_error(fmt::format("no \"{}\" in {}", key, value.dump().substr(0, 400)));
  return at(*member, rest...);
}
template <typename... Rest>
const Json& at(const Json& value, int index, Rest... rest) {
  const Json::Array* list = value.as_array();
  if (list == nullptr || static_cast<size_t>(index) >= list->size())
    throw std::runtime_error(fmt::format("no [{}] in {}", index, value.dump().substr(0, 400)));
  return at((*list)[static_cast<size_t>(index)], rest...);
}
template <typename... Path>
std::string text_at(const Json& value, Path... path) {
  const Json& found = at(value, path...);
  return found.as_string() != nullptr ? *found.as_string() : found.dump();
}
template <typename... Path>
int64_t number_at(const Json& value, Path... path) {
  return at(value, path...).as_integer().value_or(-1);
}

inline Json parse_body(const HttpClient::Answer& answer) {
  // Whatever a client gets is JSON that every reader understands.
  return Json::parse_strict(answer.body);
}

// All events of a stream, parsed; "[DONE]" is left out, and noted.
struct Stream {
  int status = 0;
  std::vector<std::string> names;
  std::vector<Json> events;
  bool done = false;
};
inline Stream read_stream(HttpClient& client, const std::string& path, const std::string& body) {
  Stream s;
  s.status = client.open("POST", path, body).status;
  while (const auto event = client.next_event()) {
    EXPECT_FALSE(s.done) << "an event behind [DONE]";
    if (event->data == "[DONE]") {
      s.done = true;
      continue;
    }
    s.names.push_back(event->name);
    s.events.push_back(Json::parse_strict(event->data));
  }
  return s;
}

}  // namespace hadal::serve
