// hadal serve: the model behind HTTP, for OpenAI's and Anthropic's clients.
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/deepseek_v41_config.h"
#include "commands.h"
#include "engine/generation.h"
#include "model_options.h"
#include "serve/server.h"
#include "text/json.h"

namespace hadal {
namespace {

struct ServeOptions {
  ModelOptions model;
  PrefixCacheDiskOptions disk;
  serve::ServerOptions server;
  std::vector<std::string> keys;
  std::string key_file;
  int64_t requests_per_minute = 0, tokens_per_minute = 0;
  int64_t max_body_mb = 64;
  double shutdown_seconds = 30;
  std::string speculate = "off";
  bool no_prefix_cache = false, quiet = false;
};

// Defaults of sampling that the model's authors recommend.
void read_generation_config(const std::filesystem::path& model, serve::ServiceOptions& service) {
  const std::filesystem::path file = model / "generation_config.json";
  if (!std::filesystem::exists(file)) return;
  const std::optional<text::Json> config = text::Json::try_parse(read_text(file.string()));
  if (!config) fail(ErrorKind::invalid_data, "{} is not valid JSON", file.string());
  for (const auto& [name, value] : {std::pair{"temperature", &service.temperature}, std::pair{"top_p", &service.top_p}})
    if (const text::Json* found = config->find(name); found != nullptr && found->as_number() != nullptr)
      *value = std::strtod(found->as_number()->text.c_str(), nullptr);
}

// A key in each line, and its own limits behind it: KEY requests=60 tokens=100000.
void read_keys(const std::string& file, const serve::ApiKey& limits, std::vector<serve::ApiKey>& keys) {
  std::ifstream in(file);
  if (!in) fail(ErrorKind::io, "cannot open {}", file);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line);
    serve::ApiKey key = limits;
    if (!(words >> key.key) || key.key[0] == '#') continue;
    for (std::string word; words >> word;) {
      const size_t sign = word.find('=');
      const std::string name = word.substr(0, sign), value = sign == std::string::npos ? "" : word.substr(sign + 1);
      int64_t limit = -1;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), limit);
      const bool known = name == "requests" || name == "tokens";
      if (!known || error != std::errc() || end != value.data() + value.size() || limit < 0)
        fail(ErrorKind::invalid_argument, "{}, line {}: '{}', expected requests=N or tokens=N behind the key", file,
             number, word);
      (name == "requests" ? key.requests_per_minute : key.tokens_per_minute) = limit;
    }
    keys.push_back(std::move(key));
  }
}

// What the engine would refuse only when the model is loaded, and the server already listens.
void check_engine_options(const EngineOptions& o) {
  parse_prefill_mode(o.prefill);
  use_isa(parse_backend(o.backend), o.isa);
  const V41Config config = V41Config::load(o.model / "config.json");
  const int most = config.draft_stages() > 0 ? config.dspark_block_size : 0;
  if (o.speculate > most)
    fail(ErrorKind::invalid_argument, "--speculate is {}, the model drafts {} tokens a step", o.speculate, most);
}

void run(ServeOptions& o) {
  // A server's log is read long after.
  log::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l: %v");
  serve::ServerOptions& s = o.server;
  o.model.give(s.engine);
  o.disk.give(s.engine);
  s.engine.speculate = parse_speculate(o.speculate);
  s.engine.prefix_cache = !o.no_prefix_cache;
  if (!std::filesystem::exists(s.engine.model / "config.json"))
    fail(ErrorKind::io, "{} holds no config.json; give the folder of a checkpoint", s.engine.model.string());
  if (s.service.names.empty())
    s.service.names.push_back(std::filesystem::weakly_canonical(s.engine.model).filename().string());
  const serve::ApiKey limits{{}, o.requests_per_minute, o.tokens_per_minute};
  for (const std::string& key : o.keys) {
    s.service.api_keys.push_back(limits);
    s.service.api_keys.back().key = key;
  }
  if (!o.key_file.empty()) read_keys(o.key_file, limits, s.service.api_keys);
  if (s.service.api_keys.empty() && (o.requests_per_minute > 0 || o.tokens_per_minute > 0))
    fail(ErrorKind::invalid_argument,
         "--requests-per-minute and --tokens-per-minute limit keys; give --api-key or --api-key-file");
  check_engine_options(s.engine);
  read_generation_config(s.engine.model, s.service);
  s.service.log_requests = !o.quiet;
  s.http.max_body_bytes = static_cast<size_t>(o.max_body_mb) << 20;
  s.shutdown_time = std::chrono::milliseconds(static_cast<int64_t>(o.shutdown_seconds * 1000));
  const int64_t descriptors = serve::raise_descriptor_limit();
  if (descriptors > 0 && descriptors < s.http.max_connections + 64)
    s.http.max_connections = static_cast<int>(std::max<int64_t>(1, descriptors - 64));

  // Signals are waited for, not handled; every thread that starts from here on leaves them alone.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  serve::Server server(s);
  log::info("listening on {}://{}:{}, loading {}", s.http.certificate_file.empty() ? "http" : "https", s.http.host,
            server.port(), s.engine.model.string());
  server.load();
  log::info("memory: {}", to_string(server.engine()->memory_plan()));
  log::info(
      "ready: model {}, backend {}, {} requests at once, {} may wait, context {} tokens, cache {} tokens, {} "
      "connections, {}",
      fmt::join(s.service.names, ", "), server.engine()->backend(), s.engine.max_requests, s.engine.max_waiting,
      server.engine()->context_length(), server.engine()->stats().cache_tokens, s.http.max_connections,
      s.service.api_keys.empty() ? "no API key" : fmt::format("{} API keys", s.service.api_keys.size()));
  log::info("prefill {}, speculate {}, prefix cache {}, steps of {} tokens", s.engine.prefill, o.speculate,
            s.engine.prefix_cache ? fmt::format("{} MiB", s.engine.prefix_cache_mib) : "off", s.engine.step_tokens);

  int signal = 0;
  sigwait(&signals, &signal);
  log::info("{}: finishing {} requests, at most {} s; once more ends at once",
            signal == SIGINT ? "interrupted" : "terminated", server.http_stats().exchanges, o.shutdown_seconds);
  // A second signal does what it does by default.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  const int64_t cut = server.shut_down();
  if (cut > 0)
    log::warn("{} requests were cut off", cut);
  else
    log::info("all requests were answered");
}

}  // namespace

void add_serve(CLI::App& app) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* c =
      app.add_subcommand("serve", "Serve a model over HTTP, for OpenAI's and Anthropic's clients (docs/serving.md)");
  serve::ServerOptions& s = o->server;
  s.engine.max_requests = 32;
  o->model.add_to(*c, false);
  c->add_option("--host", s.http.host, "Address to listen on; 0.0.0.0 or :: for all")->capture_default_str();
  c->add_option("--port", s.http.port, "Port; 0 takes any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  c->add_option("--served-model-name", s.service.names,
                "Name of the model; several may be given, answers carry the first (default: the folder's name)")
      ->expected(1)
      ->take_all();
  c->add_option("--api-key", o->keys, "Key that clients must send; may be given several times")
      ->expected(1)
      ->take_all();
  c->add_option("--api-key-file", o->key_file,
                "File with a key in each line, and perhaps its own limits: KEY requests=60 tokens=100000");
  c->add_option("--requests-per-minute", o->requests_per_minute,
                "Most requests of one key; more get status 429; 0 = any")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  c->add_option("--tokens-per-minute", o->tokens_per_minute,
                "Most tokens of one key, of prompts and answers; more get status 429; 0 = any")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  c->add_option("--allowed-origins", s.service.allowed_origins,
                "Origin of web pages that may ask (CORS); may be given several times")
      ->expected(1)
      ->take_all()
      ->capture_default_str();
  CLI::Option* certificate =
      c->add_option("--ssl-certfile", s.http.certificate_file, "Certificate chain (PEM): answer with TLS, https://");
  CLI::Option* key =
      c->add_option("--ssl-keyfile", s.http.key_file, "Private key of the certificate (PEM)")->needs(certificate);
  certificate->needs(key);
  c->add_option("--max-model-len", s.service.max_model_len, "Most tokens of prompt and answer; 0 = the model's context")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  c->add_option("--default-max-tokens", s.service.default_max_tokens,
                "Most tokens of an answer when the client does not say")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  c->add_option("--max-num-seqs", s.engine.max_requests, "Requests that run at once; others wait")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  c->add_option("--max-waiting", s.engine.max_waiting, "Requests that wait; more get status 429")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  c->add_option("--max-num-batched-tokens", s.engine.step_tokens,
                "Tokens of one step: decoding first, then prompts in chunks")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--cache-tokens", s.engine.cache_tokens,
                "Tokens that all running requests may hold; 0 = 4096 for each of --max-num-seqs")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  c->add_option("--prefill", s.engine.prefill,
                "Rows that decoder layers run for a prompt: full, exact (the same logits), bounded (approximate)")
      ->capture_default_str();
  c->add_flag("--no-prefix-cache", o->no_prefix_cache, "Run every prompt whole, whatever earlier requests have run");
  c->add_option("--prefix-cache-mib", s.engine.prefix_cache_mib,
                "Memory of the host for snapshots of prefixes; their pages are part of --cache-tokens")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  o->disk.add_to(*c);
  c->add_option("--batch-window-ms", s.engine.batch_window_ms,
                "An idle engine waits so long for company before it starts; requests of high priority do not wait")
      ->check(CLI::Range(0.0, 10000.0))
      ->capture_default_str();
  c->add_option("--speculate", o->speculate,
                "Drafts that a step verifies: off, auto (as many as pay), or a number; the tokens are the same")
      ->capture_default_str();
  c->add_option("--max-connections", s.http.max_connections, "Open connections; more get status 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--max-body-mb", o->max_body_mb, "Largest request body in MiB; larger ones get status 413")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c->add_option("--http-threads", s.http.io_threads, "Threads that carry connections")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  c->add_option("--request-threads", s.http.worker_threads, "Threads that parse and tokenise requests")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  c->add_option("--shutdown-seconds", o->shutdown_seconds,
                "Time that running requests have when the server is told to end")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  c->add_option("--trace", s.service.trace_file,
                "File for a time line of all requests (Chrome trace events, for ui.perfetto.dev)");
  c->add_flag("--disable-log-requests", o->quiet, "No line in the log for each request");
  c->callback([o] { run(*o); });
}

}  // namespace hadal
