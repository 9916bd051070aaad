// What every endpoint needs: the model, its names and limits, the counters.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "hadal/engine.h"
#include "serve/api_error.h"
#include "serve/api_keys.h"
#include "serve/generation.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/response_store.h"
#include "serve/trace.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace hadal::serve {

struct ServiceOptions {
  std::vector<std::string> names;                 // that clients may call the model; answers carry the first
  int64_t max_model_len = 0;                      // most tokens of prompt and answer; 0: the model's context
  int64_t default_max_tokens = 4096;              // of an answer, when the client does not say
  double temperature = 1.0, top_p = 1.0;          // when the client does not say
  std::vector<ApiKey> api_keys;                   // none: everybody may ask
  std::vector<std::string> allowed_origins{"*"};  // of browsers (CORS)
  size_t stored_responses = 1024, stored_response_bytes = 64 << 20;
  bool log_requests = true;
  std::string trace_file;  // empty: none
};

// One request under way.
struct Call {
  HttpRequest http;
  std::shared_ptr<Exchange> exchange;
  text::Json body;               // of a POST
  std::shared_ptr<Quota> quota;  // of its key; nullptr: none
};

class Service {
 public:
  explicit Service(ServiceOptions options);

  // Until ready() is called requests for the model are answered with 503.
  void ready(std::shared_ptr<Engine> engine, text::Tokenizer tokenizer);
  // The engine goes: what runs is cancelled, and its clients are told.
  void close();

  // Answers any request. HttpServer's handler.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  HttpResponse error(int status, const std::string& message, std::string_view path) const;
  // Where /metrics finds the figures of the HTTP server.
  void watch(std::function<HttpServerStats()> stats) { http_stats_ = std::move(stats); }

  // For endpoints. Throws ApiError(503) while the model loads.
  std::shared_ptr<Engine> engine() const;
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  // Throws ApiError(400) when the model's vocabulary does not allow grammars.
  grammar::Grammars& grammars() const;
  const ServiceOptions& options() const { return options_; }
  int64_t max_model_len() const { return max_model_len_; }
  const std::string& fingerprint() const { return fingerprint_; }
  int64_t created() const { return created_; }
  ResponseStore& responses() { return responses_; }
  Metrics& metrics() { return metrics_; }
  // Throws ApiError(404) for a name that the model does not have; an empty one is the model's.
  void check_model(const std::string& name) const;
  // Gives the requests to the engine, with this service's tokenizer, metrics, log and trace. Throws ApiError(429) when they
  // are more than the key's quota.
  void generate(const Call& call, std::vector<Request> requests, TextOptions text, std::unique_ptr<AnswerSink> sink);

 private:
  void route(Call& call);
  HttpHeaders cors(const HttpRequest& request) const;

  const ServiceOptions options_;
  const ApiKeys keys_;
  const std::shared_ptr<Trace> trace_;
  const int64_t created_;
  mutable std::mutex mutex_;  // guards the engine's pointer
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<grammar::Grammars> grammars_;  // nullptr: not for this vocabulary
  int64_t max_model_len_ = 0;
  std::string fingerprint_;
  Metrics metrics_;
  ResponseStore responses_;
  std::function<HttpServerStats()> http_stats_;
};

// Unix time in seconds.
int64_t unix_time();
// "chatcmpl-" and 24 hexadecimal digits that nobody can guess.
std::string new_id(std::string_view prefix);
// A JSON string literal.
std::string json_quoted(std::string_view text);
// A plain JSON answer.
void respond(const Call& call, const text::Json& body);

// The endpoints. Each throws ApiError, or Error, before anything was sent.
void chat_completions(Service& service, Call& call);
void completions(Service& service, Call& call);
void anthropic_messages(Service& service, Call& call);
void anthropic_count_tokens(Service& service, Call& call);
void create_response(Service& service, Call& call);
void stored_response(Service& service, Call& call, const std::string& id);  // GET and DELETE
void tokenize(Service& service, Call& call);
void detokenize(Service& service, Call& call);

}  // namespace hadal::serve
