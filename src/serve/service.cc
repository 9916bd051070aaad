#include "serve/service.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <ctime>

#include "base/log.h"
#include "serve/fields.h"
#include "serve/page/page.h"

namespace hadal::serve {

using text::Json;

namespace {

uint64_t random_bits() {
  uint64_t bits = 0;
  while (::getrandom(&bits, sizeof bits, 0) != sizeof bits) {}
  return bits;
}

}  // namespace

int64_t unix_time() { return static_cast<int64_t>(std::time(nullptr)); }

std::string new_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(), random_bits() >> 32);
}

std::string json_quoted(std::string_view text) {
  std::string out;
  text::append_json_string(text, out);
  return out;
}

void respond(const Call& call, const Json& body) {
  HttpResponse r;
  r.body = body.dump();
  call.exchange->respond(std::move(r));
}

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      keys_(options_.api_keys),
      trace_(options_.trace_file.empty() ? nullptr : std::make_shared<Trace>(options_.trace_file)),
      created_(unix_time()),
      responses_(options_.stored_responses, options_.stored_response_bytes) {}

void Service::ready(std::shared_ptr<Engine> engine, text::Tokenizer tokenizer) {
  const std::lock_guard lock(mutex_);
  tokenizer_ = std::make_unique<text::Tokenizer>(std::move(tokenizer));
  try {
    grammars_ = std::make_unique<grammar::Grammars>(grammar::Vocabulary::of(*tokenizer_, engine->eos_token()));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    log::warn("response formats and required tool calls will be refused: {}", error.what());
  }
  max_model_len_ = engine->context_length();
  if (options_.max_model_len > 0) max_model_len_ = std::min(max_model_len_, options_.max_model_len);
  fingerprint_ = fmt::format("fp_hadal_{}", HADAL_VERSION);
  engine_ = std::move(engine);
}

void Service::close() {
  std::shared_ptr<Engine> engine;
  const std::lock_guard lock(mutex_);
  engine.swap(engine_);
}

std::shared_ptr<Engine> Service::engine() const {
  const std::lock_guard lock(mutex_);
  if (engine_) return engine_;
  ApiError error(503, tokenizer_ ? "the server is shutting down" : "the model is loading");
  error.retry_after = 1;
  throw error;
}

grammar::Grammars& Service::grammars() const {
  if (!grammars_)
    throw ApiError(400, "this model's vocabulary does not allow response formats and required tool calls", {},
                   "unsupported_parameter");
  return *grammars_;
}

void Service::check_model(const std::string& name) const {
  if (name.empty() || std::find(options_.names.begin(), options_.names.end(), name) != options_.names.end()) return;
  throw ApiError(404,
                 fmt::format("the model {} does not exist; this server has {}", json_quoted(name),
                             fmt::join(options_.names, ", ")),
                 "model", "model_not_found");
}

void Service::generate(const Call& call, std::vector<Request> requests, TextOptions text,
                       std::unique_ptr<AnswerSink> sink) {
  std::unique_ptr<Quota::Charge> charge;
  if (call.quota) {
    int64_t tokens = 0;
    for (const Request& r : requests) tokens += static_cast<int64_t>(r.prompt.size()) + r.n * r.max_tokens;
    charge = call.quota->charge(tokens);
  }
  Generation::start(
      engine(), tokenizer(), metrics_, options_.log_requests,
      {std::move(requests), std::move(text), call.http.request_id, call.http.path, std::move(charge), trace_},
      call.exchange, std::move(sink));
}

HttpResponse Service::error(int status, const std::string& message, std::string_view path) const {
  return error_response(ApiError(status, message), dialect_of(path));
}

HttpHeaders Service::cors(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return {};
  const bool any = std::find(options_.allowed_origins.begin(), options_.allowed_origins.end(), "*") !=
                   options_.allowed_origins.end();
  const bool listed = std::find(options_.allowed_origins.begin(), options_.allowed_origins.end(), origin) !=
                      options_.allowed_origins.end();
  if (!any && !listed) return {};
  HttpHeaders headers{{"Access-Control-Allow-Origin", any ? "*" : std::string(origin)},
                      {"Access-Control-Expose-Headers", "X-Request-Id, Request-Id, Retry-After"}};
  if (!any) headers.emplace_back("Vary", "Origin");
  return headers;
}

namespace {

// Puts headers on whatever answer comes.
class WithHeaders final : public Exchange {
 public:
  WithHeaders(std::shared_ptr<Exchange> inner, HttpHeaders headers)
      : inner_(std::move(inner)), headers_(std::move(headers)) {}
  void post(std::function<void()> f) override { inner_->post(std::move(f)); }
  void respond(HttpResponse r) override { inner_->respond(with(std::move(r))); }
  void begin_stream(HttpResponse h) override { inner_->begin_stream(with(std::move(h))); }
  void write(std::string b) override { inner_->write(std::move(b)); }
  void end() override { inner_->end(); }
  void on_abort(std::function<void()> f) override { inner_->on_abort(std::move(f)); }

 private:
  HttpResponse with(HttpResponse r) const {
    r.headers.insert(r.headers.end(), headers_.begin(), headers_.end());
    return r;
  }
  const std::shared_ptr<Exchange> inner_;
  const HttpHeaders headers_;
};

}  // namespace

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  HttpHeaders headers = cors(request);
  // Where Anthropic's clients look for the id.
  if (dialect_of(request.path) == Dialect::anthropic) headers.emplace_back("request-id", request.request_id);
  if (!headers.empty()) exchange = std::make_shared<WithHeaders>(exchange, std::move(headers));
  Call call{std::move(request), std::move(exchange), {}, nullptr};
  const auto refuse = [&](const ApiError& error) {
    if (error.status < 500) ++metrics_.refused;
    if (error.code == "rate_limit_exceeded") ++metrics_.over_quota;
    if (options_.log_requests)
      log::info("request={} endpoint={} status={} error={}", call.http.request_id, json_quoted(call.http.path),
                error.status, json_quoted(error.message));
    call.exchange->respond(error_response(error, dialect_of(call.http.path), call.http.request_id));
  };
  try {
    route(call);
  } catch (const ApiError& error) { refuse(error); } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    refuse(api_error_of(error));
  }
}

void Service::route(Call& call) {
  const std::string& method = call.http.method;
  std::string path = call.http.path;
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (method == "OPTIONS") {
    HttpResponse r;
    r.status = 204;
    r.headers = {
        {"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
        {"Access-Control-Allow-Headers", call.http.header("access-control-request-headers").empty()
                                             ? "*"
                                             : std::string(call.http.header("access-control-request-headers"))},
        {"Access-Control-Max-Age", "86400"}};
    return call.exchange->respond(std::move(r));
  }

  const bool get = method == "GET" || method == "HEAD";
  const auto text = [&](std::string body, std::string type) {
    HttpResponse r;
    r.body = std::move(body);
    r.content_type = std::move(type);
    call.exchange->respond(std::move(r));
  };
  // Open to everybody: whether the server lives, and the page, which asks for a key itself.
  if (get && (path == "/health" || path == "/ping")) {
    engine();
    return text("", "text/plain");
  }
  if (get && path == "/") {
    HttpResponse r;
    const bool unchanged = call.http.header("if-none-match") == page_etag();
    r.status = unchanged ? 304 : 200;
    if (!unchanged) r.body = page_html();
    r.content_type = kPageType;
    r.headers = {{"ETag", std::string(page_etag())}, {"Cache-Control", "no-cache"}};
    return call.exchange->respond(std::move(r));
  }
  if (get && path == "/version") return respond(call, Json::Object{{"version", HADAL_VERSION}, {"server", "hadal"}});

  call.quota = keys_.check(call.http);
  if (get && path == "/metrics") {
    Metrics::View view;
    view.model = options_.names.front();
    view.backend = engine()->backend();
    view.context_length = max_model_len_;
    view.engine = engine()->stats();
    if (http_stats_) view.http = http_stats_();
    return text(metrics_.text(view), "text/plain; version=0.0.4; charset=utf-8");
  }
  if (get && path == "/load") {
    const EngineStats stats = engine()->stats();
    return respond(call, Json::Object{{"server_load", stats.running + stats.waiting}});
  }
  if (get && path.starts_with("/v1/models")) {
    const auto card = [&](const std::string& name) {
      engine();
      return Json(Json::Object{{"id", name},
                               {"object", "model"},
                               {"created", created_},
                               {"owned_by", "hadal"},
                               {"root", options_.names.front()},
                               {"parent", Json()},
                               {"max_model_len", max_model_len_}});
    };
    if (path == "/v1/models") {
      Json::Array data;
      for (const std::string& name : options_.names) data.push_back(card(name));
      return respond(call, Json::Object{{"object", "list"}, {"data", std::move(data)}});
    }
    const std::string name = path.substr(std::string_view("/v1/models/").size());
    check_model(name);
    return respond(call, card(name));
  }
  if (constexpr std::string_view stored = "/v1/responses/"; path.starts_with(stored) && (get || method == "DELETE"))
    return stored_response(*this, call, path.substr(stored.size()));

  using Endpoint = void (*)(Service&, Call&);
  static constexpr std::pair<std::string_view, Endpoint> kPosts[] = {
      {"/v1/chat/completions", chat_completions},
      {"/v1/completions", completions},
      {"/v1/messages", anthropic_messages},
      {"/v1/messages/count_tokens", anthropic_count_tokens},
      {"/v1/responses", create_response},
      {"/tokenize", tokenize},
      {"/detokenize", detokenize},
      {"/chat/completions", chat_completions},
      {"/completions", completions}};
  static constexpr std::string_view kGets[] = {"/", "/health", "/ping", "/version", "/metrics", "/load", "/v1/models"};
  for (const auto& [name, endpoint] : kPosts) {
    if (path != name) continue;
    if (method != "POST") throw ApiError(405, fmt::format("{} does not answer {}, only POST", path, method));
    try {
      call.body = Json::parse_strict(call.http.body);
    } catch (const Error& error) { throw ApiError(400, fmt::format("the body is {}", error.what())); }
    call.http.body = {};
    engine();  // or 503, before the fields are looked at
    return endpoint(*this, call);
  }
  if (std::find(std::begin(kGets), std::end(kGets), path) != std::end(kGets))
    throw ApiError(405, fmt::format("{} does not answer {}, only GET", path, method));
  if (path == "/v1/embeddings" || path == "/v1/rerank" || path == "/rerank" || path == "/v1/score" || path == "/score")
    throw ApiError(404, fmt::format("{} is for other kinds of models; this server has a language model", path));
  throw ApiError(404, fmt::format("there is no {} {}; docs/serving.md lists what there is", method, json_quoted(path)));
}

}  // namespace hadal::serve
