// hadal bench serve: load for a server that speaks OpenAI's protocol, and what its clients see.
#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "arrivals.h"
#include "base/error.h"
#include "bench_load.h"
#include "checkpoint/output_file.h"
#include "heat_map.h"
#include "serve/http_client.h"
#include "text/json.h"

namespace hadal {
namespace {

using Clock = std::chrono::steady_clock;
using text::Json;

struct ServeLoad : LoadOptions {
  std::string url = "http://127.0.0.1:8000", key, model;
  double rate = 0;  // requests a second; 0: as the concurrency allows
  std::vector<double> rates;
  std::vector<int> concurrencies;
  std::string arrivals_file, heat_map;
  double speedup = 1;
  bool any_concurrency = false;  // as much as a rate or the arrivals need
  double timeout = 600;
  bool json = false;
};

struct Target {
  std::string host;
  int port = 80;
};

Target parse_url(const std::string& url) {
  if (url.starts_with("https://")) fail(ErrorKind::unsupported, "{}: only http:// is supported", url);
  std::string place = url.substr(url.starts_with("http://") ? 7 : 0);
  place.resize(std::min(place.find('/'), place.size()));
  const size_t colon = std::min(place.rfind(':'), place.size());
  Target t{place.substr(0, colon), 80};
  const char *begin = place.data() + colon + 1, *end = place.data() + place.size();
  const bool port = colon == place.size() || (std::from_chars(begin, end, t.port).ptr == end && begin < end);
  in_addr address{};
  if (!port || t.port < 1 || t.port > 65535 ||
      (t.host != "localhost" && ::inet_pton(AF_INET, t.host.c_str(), &address) != 1))
    fail(ErrorKind::invalid_argument, "'{}' is no URL as http://ADDRESS:PORT, where the address is IPv4's or localhost",
         url);
  return t;
}

struct Outcome {
  bool ok = false;
  std::string error;
  double late = 0, first = 0, total = 0;  // seconds since the moment at which it was due; late: until it was sent
  std::vector<double> gaps;               // between chunks with text
  int64_t tokens = 0, prompt_tokens = 0;
};

std::string body_of(const ServeLoad& o, const Arrival& arrival, int number) {
  std::string model;
  if (!o.model.empty()) model = fmt::format("\"model\": {}, ", Json(o.model).dump());
  const std::string prompt =
      arrival.prompt_tokens > 0 ? fmt::format("[{}]", fmt::join(prompt_of(arrival, static_cast<uint64_t>(number)), ","))
                                : Json(load_prompt(o.seed, number, o.prompt_words)).dump();
  return fmt::format(
      R"({{{}"prompt": {}, "max_tokens": {}, "ignore_eos": true, "temperature": {}, "top_p": 1, "seed": {}, "stream": true, )"
      R"("stream_options": {{"include_usage": true}}}})",
      model, prompt, arrival.max_tokens > 0 ? arrival.max_tokens : o.max_tokens, o.temperature, number);
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// All times count from `due`: when the client has no thread left to send in time, that is part of what a user would wait.
Outcome ask(const ServeLoad& o, const Target& target, std::unique_ptr<serve::HttpClient>& client,
            const std::string& body, Clock::time_point due) {
  Outcome r;
  r.late = since(due);
  try {
    if (!client || !client->connected())
      client = std::make_unique<serve::HttpClient>(target.host, target.port, o.timeout);
    serve::HttpHeaders headers;
    if (!o.key.empty()) headers.emplace_back("Authorization", "Bearer " + o.key);
    const auto head = client->open("POST", "/v1/completions", body, headers);
    if (head.status != 200) fail(ErrorKind::io, "status {}: {}", head.status, client->read_rest().substr(0, 200));
    double last = 0;
    bool done = false;
    while (const auto event = client->next_event()) {
      const double now = since(due);
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
  r.total = since(due);
  return r;
}

// One load, and what came of it.
struct Point {
  std::string name;  // of the heat map's column
  int concurrency;
  double rate;
  std::vector<Outcome> outcomes;
  double seconds = 0, cpu = 0;

  std::vector<double> values(double Outcome::*time) const {
    std::vector<double> ms;
    for (const Outcome& r : outcomes)
      if (r.ok) ms.push_back(r.*time * 1e3);
    return ms;
  }
  std::vector<double> gaps() const {
    std::vector<double> ms;
    for (const Outcome& r : outcomes)
      for (const double g : r.gaps)
        if (r.ok) ms.push_back(g * 1e3);
    return ms;
  }
  int64_t sum(int64_t Outcome::*count) const {
    int64_t all = 0;
    for (const Outcome& r : outcomes) all += r.ok ? r.*count : 0;
    return all;
  }
  int failed() const {
    return static_cast<int>(std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& r) { return !r.ok; }));
  }
  const std::string& first_error() const {
    return std::find_if(outcomes.begin(), outcomes.end(), [](const Outcome& r) { return !r.ok; })->error;
  }
};

std::vector<Outcome> work(const ServeLoad& o, const Target& target, const std::vector<Arrival>& arrivals, bool paced,
                          int concurrency, int first_number) {
  std::vector<Outcome> outcomes(arrivals.size());
  std::atomic<size_t> next{0};
  const Clock::time_point start = Clock::now();
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < std::min(static_cast<size_t>(concurrency), arrivals.size()); ++t)
    threads.emplace_back([&] {
      std::unique_ptr<serve::HttpClient> client;
      for (size_t i = next++; i < arrivals.size(); i = next++) {
        const std::string body = body_of(o, arrivals[i], first_number + static_cast<int>(i));
        Clock::time_point due = Clock::now();
        if (paced) {
          due = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(arrivals[i].seconds));
          std::this_thread::sleep_until(due);
        }
        outcomes[i] = ask(o, target, client, body, due);
      }
    });
  for (std::jthread& t : threads) t.join();
  return outcomes;
}

// Arrivals of a rate are a Poisson process: gaps are exponential. 0: all at once.
std::vector<Arrival> at_rate(int count, double rate, uint64_t seed) {
  std::vector<Arrival> arrivals(static_cast<size_t>(count));
  if (rate == 0) return arrivals;
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(rate);
  double at = 0;
  for (Arrival& a : arrivals) a.seconds = at += gap(random);
  return arrivals;
}

void print_point(const ServeLoad& o, const Point& p) {
  const std::pair<const char*, Percentiles> rows[] = {{"first_token_ms", percentiles(p.values(&Outcome::first))},
                                                      {"between_tokens_ms", percentiles(p.gaps())},
                                                      {"request_ms", percentiles(p.values(&Outcome::total))},
                                                      {"sent_late_ms", percentiles(p.values(&Outcome::late))}};
  const int64_t tokens = p.sum(&Outcome::tokens), prompt_tokens = p.sum(&Outcome::prompt_tokens);
  const auto answered = static_cast<double>(p.outcomes.size()) - p.failed();
  if (o.json) {
    fmt::print(
        "{{\"url\":{},\"requests\":{},\"failed\":{},\"concurrency\":{},\"rate\":{},\"seconds\":{:.3f},\"prompt_"
        "tokens\":{},\"tokens\":{},"
        "\"tokens_per_second\":{:.2f},\"requests_per_second\":{:.3f},\"client_cpu_seconds\":{:.3f}",
        Json(o.url).dump(), p.outcomes.size(), p.failed(), p.concurrency, p.rate, p.seconds, prompt_tokens, tokens,
        static_cast<double>(tokens) / p.seconds, answered / p.seconds, p.cpu);
    for (const auto& [name, v] : rows)
      fmt::print(
          ",\"{}\":{{\"mean\":{:.3f},\"p50\":{:.3f},\"p90\":{:.3f},\"p99\":{:.3f},\"p99.9\":{:.3f},\"max\":{:.3f}}}",
          name, v.mean, v.p50, v.p90, v.p99, v.p999, v.most);
    fmt::print("}}\n");
    return;
  }
  fmt::print(
      "{}{} requests, {} failed, {:.2f} s: {:.1f} tokens/s, {:.2f} requests/s; {} prompt tokens, {} tokens; client "
      "{:.2f} s of CPU\n",
      p.name.empty() ? "" : p.name + ": ", p.outcomes.size(), p.failed(), p.seconds,
      static_cast<double>(tokens) / p.seconds, answered / p.seconds, prompt_tokens, tokens, p.cpu);
  fmt::print("{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "", "mean", "p50", "p90", "p99", "p99.9", "max");
  for (const auto& [name, v] : rows)
    fmt::print("{:<18}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n", name, v.mean, v.p50, v.p90, v.p99,
               v.p999, v.most);
}

void draw_heat_map(OutputFile& out, const ServeLoad& o, const std::vector<Point>& points) {
  HeatMap first{"Time to the first token", {}}, between{"Time between tokens", {}};
  for (const Point& p : points) {
    const std::string name =
        p.name.empty() ? (p.rate > 0 ? fmt::format("{}", p.rate) : std::to_string(p.concurrency)) : p.name;
    first.columns.push_back({name, p.values(&Outcome::first)});
    between.columns.push_back({name, p.gaps()});
  }
  const bool rates = points.front().rate > 0;
  const std::string svg = heat_maps_svg(fmt::format("{}: {} requests each", o.url, points.front().outcomes.size()),
                                        rates ? "Requests a second" : "Requests at once", {first, between});
  out.write(std::as_bytes(std::span(svg)));
  out.commit();
}

void run(const ServeLoad& o) {
  const Target target = parse_url(o.url);
  std::optional<OutputFile> picture;  // opened before the load, which may take long
  if (!o.heat_map.empty()) picture.emplace(o.heat_map);
  std::vector<Point> points;
  for (const double rate : o.rates) points.push_back({fmt::format("{}", rate), 0, rate, {}});
  for (const int c : o.concurrencies) points.push_back({std::to_string(c), c, 0, {}});
  if (points.empty()) points.push_back({"", o.concurrency, o.rate, {}});
  if (o.warm_up > 0) work(o, target, at_rate(o.warm_up, 0, o.seed), false, o.concurrency, 1'000'000'000);
  int number = 0;  // so that no prompt comes twice
  for (Point& p : points) {
    std::vector<Arrival> arrivals =
        o.arrivals_file.empty() ? at_rate(o.requests, p.rate, o.seed) : read_arrivals(o.arrivals_file);
    for (Arrival& a : arrivals) a.seconds /= o.speedup;
    const bool paced = p.rate > 0 || !o.arrivals_file.empty();
    if (p.concurrency == 0) p.concurrency = o.concurrency;
    if (paced && o.any_concurrency) p.concurrency = static_cast<int>(std::min<size_t>(arrivals.size(), 1024));
    const double cpu = process_seconds();
    const Clock::time_point start = Clock::now();
    p.outcomes = work(o, target, arrivals, paced, p.concurrency, number);
    p.seconds = since(start);
    p.cpu = process_seconds() - cpu;
    number += static_cast<int>(arrivals.size());
    if (p.failed() == static_cast<int>(p.outcomes.size()))
      fail(ErrorKind::io, "all {} requests{} failed, the first with: {}", p.outcomes.size(),
           p.name.empty() ? "" : " of " + p.name, p.first_error());
    print_point(o, p);
    std::fflush(stdout);
  }
  if (picture) draw_heat_map(*picture, o, points);
  for (const Point& p : points)
    if (const int failed = p.failed(); failed > 0)
      fail(ErrorKind::io, "{} of {} requests failed, the first with: {}", failed, p.outcomes.size(), p.first_error());
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  auto o = std::make_shared<ServeLoad>();
  CLI::App* c = bench.add_subcommand("serve", "Load a server with streaming completions and say what its clients see");
  c->add_option("URL", o->url, "The server")->capture_default_str();
  c->add_option("--api-key", o->key, "Key to send");
  c->add_option("--model", o->model, "Model to ask for; the server's only one when left out");
  o->LoadOptions::add_to(*c);
  CLI::Option* rate =
      c->add_option("--rate", o->rate, "Requests a second, at random moments; 0 = as fast as --concurrency allows")
          ->check(number_in(0, 1e6))
          ->capture_default_str();
  CLI::Option* arrivals =
      c->add_option("--arrivals", o->arrivals_file,
                    "File with a request in each line: {\"timestamp\": ms, \"input_length\": tokens, "
                    "\"output_length\": tokens, \"hash_ids\": [...]}; instead of --requests")
          ->excludes(rate);
  c->add_option("--speedup", o->speedup, "Times of --arrivals are divided by this")
      ->check(number_in(1e-3, 1e6))
      ->needs(arrivals)
      ->capture_default_str();
  CLI::Option* rates = c->add_option("--sweep-rate", o->rates, "The load again and again at these rates: 1,2,4,8")
                           ->delimiter(',')
                           ->check(number_in(1e-6, 1e6))
                           ->excludes(rate)
                           ->excludes(arrivals);
  c->add_option("--sweep-concurrency", o->concurrencies, "The same with so many requests at once: 1,2,4,8")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->excludes(rate)
      ->excludes(arrivals)
      ->excludes(rates);
  c->add_option("--heat-map", o->heat_map,
                "SVG file for a picture of the latencies, a column for each load of a sweep");
  c->add_option("--timeout", o->timeout, "Seconds without a byte after which a request has failed")
      ->check(number_in(0.1, 1e5))
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o, c] {
    o->any_concurrency = c->get_option("--concurrency")->count() == 0;
    run(*o);
  });
}

}  // namespace hadal
