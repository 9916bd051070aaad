// hadal bench serve: load for a server that speaks OpenAI's protocol, and what its clients see.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "bench_load.h"
#include "serve/http_client.h"
#include "text/json.h"

namespace hadal {
namespace {

using Clock = std::chrono::steady_clock;
using text::Json;

struct ServeLoad : LoadOptions {
  std::string url = "http://127.0.0.1:8000", key, model;
  double rate = 0;  // requests a second; 0: as the concurrency allows
  double timeout = 600;
  bool json = false;
};

struct Target {
  std::string host;
  int port = 80;
};

Target parse_url(std::string url) {
  if (url.starts_with("https://")) fail(ErrorKind::unsupported, "{}: only http:// is supported", url);
  if (url.starts_with("http://")) url.erase(0, 7);
  url = url.substr(0, url.find('/'));
  const size_t colon = url.rfind(':');
  Target t{url.substr(0, colon), 80};
  if (colon != std::string::npos) t.port = std::atoi(url.c_str() + colon + 1);
  if (t.host.empty() || t.port < 1 || t.port > 65535)
    fail(ErrorKind::invalid_argument, "'{}' is no URL as http://HOST:PORT", url);
  return t;
}

struct Outcome {
  bool ok = false;
  std::string error;
  double first = 0, total = 0, start = 0;  // seconds; start from the beginning of the run
  std::vector<double> gaps;                // between chunks with text
  int64_t tokens = 0, prompt_tokens = 0;
};

std::string body_of(const ServeLoad& o, int number) {
  std::string model;
  if (!o.model.empty()) model = fmt::format("\"model\": {}, ", Json(o.model).dump());
  return fmt::format(
      R"({{{}"prompt": {}, "max_tokens": {}, "ignore_eos": true, "temperature": {}, "top_p": 1, "seed": {}, "stream": true, )"
      R"("stream_options": {{"include_usage": true}}}})",
      model, Json(load_prompt(o.seed, number, o.prompt_words)).dump(), o.max_tokens, o.temperature, number);
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Outcome ask(const ServeLoad& o, const Target& target, std::unique_ptr<serve::HttpClient>& client, int number,
            Clock::time_point run_start) {
  Outcome r;
  const Clock::time_point start = Clock::now();
  r.start = std::chrono::duration<double>(start - run_start).count();
  try {
    if (!client || !client->connected())
      client = std::make_unique<serve::HttpClient>(target.host, target.port, o.timeout);
    serve::HttpHeaders headers;
    if (!o.key.empty()) headers.emplace_back("Authorization", "Bearer " + o.key);
    const auto head = client->open("POST", "/v1/completions", body_of(o, number), headers);
    if (head.status != 200) fail(ErrorKind::io, "status {}: {}", head.status, client->read_rest().substr(0, 200));
    double last = 0;
    bool done = false;
    while (const auto event = client->next_event()) {
      const double now = since(start);
      if (event->data == "[DONE]") {
        done = true;
        continue;
      }
      const Json chunk = Json::parse(event->data);
      if (const Json* error = chunk.find("error")) fail(ErrorKind::io, "{}", error->dump());
      if (const Json* usage = chunk.find("usage"); usage != nullptr && !usage->is_null()) {
        r.tokens = usage->find("completion_tokens")->as_integer().value_or(0);
        r.prompt_tokens = usage->find("prompt_tokens")->as_integer().value_or(0);
      }
      const Json::Array* choices = chunk.find("choices")->as_array();
      if (choices == nullptr || choices->empty() || choices->front().find("text")->as_string()->empty()) continue;
      if (r.first == 0)
        r.first = now;
      else
        r.gaps.push_back(now - last);
      last = now;
    }
    if (!done) fail(ErrorKind::io, "the stream ended without [DONE]");
    r.ok = true;
  } catch (const std::exception& error) {
    r.error = error.what();
    client.reset();
  }
  r.total = since(start);
  return r;
}

void run(const ServeLoad& o) {
  const Target target = parse_url(o.url);
  const auto work = [&](int count, int first_number, bool paced) {
    std::vector<Outcome> outcomes(static_cast<size_t>(count));
    std::atomic<int> next{0};
    const Clock::time_point start = Clock::now();
    // Arrivals of a rate are a Poisson process: gaps are exponential.
    std::vector<double> arrival(static_cast<size_t>(count), 0);
    if (paced && o.rate > 0) {
      std::mt19937_64 random(o.seed);
      std::exponential_distribution<double> gap(o.rate);
      double at = 0;
      for (double& a : arrival) a = at += gap(random);
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < std::min(o.concurrency, count); ++t)
      threads.emplace_back([&] {
        std::unique_ptr<serve::HttpClient> client;
        for (int i = next++; i < count; i = next++) {
          std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                                    std::chrono::duration<double>(arrival[static_cast<size_t>(i)])));
          outcomes[static_cast<size_t>(i)] = ask(o, target, client, first_number + i, start);
        }
      });
    for (std::thread& t : threads) t.join();
    return std::pair(std::move(outcomes), since(start));
  };
  if (o.warm_up > 0) work(o.warm_up, 1'000'000'000, false);
  const double cpu_before = process_seconds();
  const auto [outcomes, seconds] = work(o.requests, 0, true);
  const double cpu = process_seconds() - cpu_before;

  std::vector<double> first, gaps, total;
  int64_t tokens = 0, prompt_tokens = 0;
  int failed = 0;
  std::string error;
  for (const Outcome& r : outcomes) {
    if (!r.ok) {
      ++failed;
      if (error.empty()) error = r.error;
      continue;
    }
    tokens += r.tokens;
    prompt_tokens += r.prompt_tokens;
    first.push_back(r.first * 1e3);
    total.push_back(r.total * 1e3);
    for (const double g : r.gaps) gaps.push_back(g * 1e3);
  }
  const std::pair<const char*, Percentiles> rows[] = {{"first_token_ms", percentiles(first)},
                                                      {"between_tokens_ms", percentiles(gaps)},
                                                      {"request_ms", percentiles(total)}};
  if (o.json) {
    fmt::print(
        "{{\"url\":{},\"requests\":{},\"failed\":{},\"concurrency\":{},\"rate\":{},\"seconds\":{:.3f},\"prompt_"
        "tokens\":{},\"tokens\":{},"
        "\"tokens_per_second\":{:.2f},\"requests_per_second\":{:.3f},\"client_cpu_seconds\":{:.3f}",
        Json(o.url).dump(), outcomes.size(), failed, o.concurrency, o.rate, seconds, prompt_tokens, tokens,
        static_cast<double>(tokens) / seconds, static_cast<double>(outcomes.size()) / seconds, cpu);
    for (const auto& [name, p] : rows)
      fmt::print(
          ",\"{}\":{{\"mean\":{:.3f},\"p50\":{:.3f},\"p90\":{:.3f},\"p99\":{:.3f},\"p99.9\":{:.3f},\"max\":{:.3f}}}",
          name, p.mean, p.p50, p.p90, p.p99, p.p999, p.most);
    fmt::print("}}\n");
  } else {
    fmt::print(
        "{} requests, {} failed, {:.2f} s: {:.1f} tokens/s, {:.2f} requests/s; {} prompt tokens, {} tokens; client "
        "{:.2f} s of CPU\n",
        outcomes.size(), failed, seconds, static_cast<double>(tokens) / seconds,
        static_cast<double>(outcomes.size()) / seconds, prompt_tokens, tokens, cpu);
    fmt::print("{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "", "mean", "p50", "p90", "p99", "p99.9", "max");
    for (const auto& [name, p] : rows)
      fmt::print("{:<18}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n", name, p.mean, p.p50, p.p90, p.p99,
                 p.p999, p.most);
  }
  if (failed > 0) fail(ErrorKind::io, "{} of {} requests failed, the first with: {}", failed, outcomes.size(), error);
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  auto o = std::make_shared<ServeLoad>();
  CLI::App* c = bench.add_subcommand("serve", "Load a server with streaming completions and say what its clients see");
  c->add_option("URL", o->url, "The server")->capture_default_str();
  c->add_option("--api-key", o->key, "Key to send");
  c->add_option("--model", o->model, "Model to ask for; the server's only one when left out");
  o->LoadOptions::add_to(*c);
  c->add_option("--rate", o->rate, "Requests a second, at random moments; 0 = as fast as --concurrency allows")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  c->add_option("--timeout", o->timeout, "Seconds without a byte after which a request has failed")
      ->check(CLI::Range(0.1, 1e5))
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { run(*o); });
}

}  // namespace hadal
