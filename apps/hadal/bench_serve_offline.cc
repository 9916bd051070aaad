// hadal bench serve-offline: requests arrive as in a trace, and the engine answers them in this process.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "arrivals.h"
#include "base/error.h"
#include "base/progress.h"
#include "bench_load.h"
#include "checkpoint/json.h"
#include "checkpoint/output_file.h"
#include "engine/generation.h"
#include "hadal/engine.h"
#include "heat_map.h"
#include "model_options.h"

namespace hadal {
namespace {

struct Arguments {
  ModelOptions model;
  PrefixCacheDiskOptions disk;
  EngineOptions engine;
  std::string speculate = "off";
  int requests = 100;
  std::vector<double> rates = {4};
  int burst = 1;
  std::string trace;
  int prompt_tokens = 256, output_tokens = 64, shared_tokens = 0;
  double spread = 0.5;
  double temperature = 1;
  uint64_t seed = 1;
  std::string heat_map;
  bool no_prefix_cache = false, json = false;
};

// What one request met, by its own clock.
struct Record {
  double arrived = 0, last = 0;
  std::vector<double> gaps;  // between tokens; those of one event share the time since the last one
  int64_t tokens = 0;
  Usage usage;
  std::string error;
};

// Lengths are log-normal around the given median: a few are long.
std::vector<Arrival> draw(const Arguments& a, double rate) {
  std::mt19937_64 random(a.seed);
  std::exponential_distribution<double> gap(rate / a.burst);
  std::lognormal_distribution<double> length(0, a.spread);
  const auto tokens = [&](int median) {
    return static_cast<int>(std::clamp(std::round(median * length(random)), 1.0, 0x1p24));
  };
  std::vector<Arrival> arrivals;
  double now = 0;
  for (int i = 0; i < a.requests; ++i) {
    if (i % a.burst == 0) now += gap(random);
    const int prompt = tokens(a.prompt_tokens);
    arrivals.push_back({now, prompt, tokens(a.output_tokens), {}});
  }
  return arrivals;
}

json::object to_json(const Percentiles& p) {
  return {{"mean", p.mean}, {"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"p99.9", p.p999}};
}

// Mean wait in an M/G/c queue by Allen and Cunneen's approximation (A. O. Allen, Probability, Statistics and Queueing
// Theory, 5.3): Erlang's C for c servers, corrected by the variation of the service time. Infinite when the load is 1 or more.
// The engine is not such a queue: its service slows down as it fills. So this is what waiting for a place would cost.
double expected_wait(double rate, int servers, const std::vector<double>& service) {
  double mean = 0, square = 0;
  for (const double s : service) {
    mean += s / static_cast<double>(service.size());
    square += s * s / static_cast<double>(service.size());
  }
  const double load = rate * mean, utilisation = load / servers;
  if (utilisation >= 1) return INFINITY;
  double term = 1, sum = 0;  // load^k / k!
  for (int k = 0; k < servers; ++k) {
    sum += term;
    term *= load / (k + 1);
  }
  const double queued = term / (1 - utilisation) / (sum + term / (1 - utilisation));
  const double variation = square / (mean * mean) - 1;
  return queued * mean / (servers * (1 - utilisation)) * (1 + variation) / 2;
}

struct Outcome {
  double rate = 0, seconds = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  int failed = 0;
  std::string first_error;
  std::vector<double> first_token, gap, queue, total;  // seconds, of all requests
  double expected_queue = 0;                           // mean
  int64_t most_reserved = 0;
  EngineStats stats;
  MemoryPlan plan;
};

Outcome replay(const Arguments& a, const std::vector<Arrival>& arrivals, double rate) {
  int64_t prompt_tokens = 0;
  for (const Arrival& arrival : arrivals) prompt_tokens += int64_t{a.shared_tokens} + arrival.prompt_tokens;
  expect_memory(fmt::format("{} requests with {} tokens of prompts", arrivals.size(), prompt_tokens),
                prompt_tokens * static_cast<int64_t>(sizeof(int32_t)), "ask for fewer, or shorter ones");
  Engine engine(a.engine);
  // Other prompts at every rate, of which a cache on disk knows nothing from the rate before.
  std::seed_seq seed{a.seed, static_cast<uint64_t>(rate * 1e6)};
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> token(0, engine.vocab_size() - 1);
  std::vector<int32_t> shared(static_cast<size_t>(a.shared_tokens));
  for (int32_t& id : shared) id = token(random);
  std::vector<Request> requests;
  for (const Arrival& arrival : arrivals) {
    Request& r = requests.emplace_back();
    r.prompt = shared;
    for (const int32_t id : prompt_of(arrival, random())) r.prompt.push_back(id % engine.vocab_size());
    r.max_tokens = arrival.max_tokens;
    r.ignore_eos = true;
    r.sampling.seed = random();
    r.sampling.temperature = a.temperature;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Record> records(arrivals.size());
  size_t finished = 0;
  Outcome out;
  const auto look = [&] {
    const EngineStats stats = engine.stats();
    out.most_reserved = std::max(out.most_reserved, stats.cache_tokens - stats.free_cache_tokens);
  };
  Progress progress(rate > 0 ? fmt::format("{} requests/s", rate) : "arrivals", arrivals.size(), "requests");
  const double start = seconds_now();
  for (size_t i = 0; i < arrivals.size(); ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(start + arrivals[i].seconds - seconds_now()));
    Record& record = records[i];
    record.arrived = record.last = seconds_now();
    try {
      engine.submit(std::move(requests[i]), [&](const Event& e) {
        const double now = seconds_now();
        for (size_t t = 0; t < e.tokens.size(); ++t)
          if (record.tokens + static_cast<int64_t>(t) > 0)
            record.gaps.push_back((now - record.last) / static_cast<double>(e.tokens.size()));
        record.tokens += static_cast<int64_t>(e.tokens.size());
        record.last = now;
        if (!e.finished) return;
        record.usage = e.usage;
        record.error = e.error;
        const std::lock_guard lock(mutex);
        ++finished;
        changed.notify_all();
      });
    } catch (const Error& error) {
      record.error = error.what();
      const std::lock_guard lock(mutex);
      ++finished;
    }
    look();
  }
  {
    std::unique_lock lock(mutex);
    for (size_t shown = 0; shown < arrivals.size();) {
      while (finished == shown) {
        changed.wait_for(lock, std::chrono::milliseconds(50));
        look();
      }
      progress.advance(finished - shown);
      shown = finished;
    }
  }
  progress.finish();

  out.rate = rate;
  out.seconds = seconds_now() - start;
  out.stats = engine.stats();
  out.plan = engine.memory_plan();
  std::vector<double> service;
  for (const Record& r : records) {
    if (!r.error.empty()) {
      if (out.failed++ == 0) out.first_error = r.error;
      continue;
    }
    out.first_token.push_back(r.usage.first_token_seconds);
    out.gap.insert(out.gap.end(), r.gaps.begin(), r.gaps.end());
    out.queue.push_back(r.usage.queue_seconds);
    out.total.push_back(r.usage.total_seconds);
    service.push_back(r.usage.total_seconds - r.usage.queue_seconds);
    out.prompt_tokens += r.usage.prompt_tokens;
    out.output_tokens += r.usage.generated_tokens;
  }
  if (service.empty())
    fail(ErrorKind::invalid_argument, "all {} requests{} failed, the first with: {}", arrivals.size(),
         rate > 0 ? fmt::format(" at {} a second", rate) : "", out.first_error);
  const double offered = static_cast<double>(arrivals.size()) / std::max(1e-9, arrivals.back().seconds);
  out.expected_queue = expected_wait(offered, a.engine.max_requests, service);
  return out;
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}
double overhead(const EngineStats& s) { return s.step_seconds > 0 ? 1 - s.model_seconds / s.step_seconds : 0; }

int64_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

void print(const Outcome& o) {
  const EngineStats& s = o.stats;
  fmt::print("\n{}: {:.1f} s, {} prompt and {} output tokens, {:.1f} output tokens/s\n",
             o.rate > 0 ? fmt::format("{} requests/s", o.rate) : "arrivals", o.seconds, o.prompt_tokens,
             o.output_tokens, static_cast<double>(o.output_tokens) / o.seconds);
  if (o.failed > 0) fmt::print("{} requests failed; the first: {}\n", o.failed, o.first_error);
  fmt::print("milliseconds        mean       p50       p90       p99     p99.9\n");
  for (const auto& [name, p] : {std::pair{"first token", percentiles(o.first_token)},
                                {"between tokens", percentiles(o.gap)},
                                {"in the queue", percentiles(o.queue)},
                                {"whole request", percentiles(o.total)}})
    fmt::print("{:14}{:10.2f}{:10.2f}{:10.2f}{:10.2f}{:10.2f}\n", name, p.mean * 1e3, p.p50 * 1e3, p.p90 * 1e3,
               p.p99 * 1e3, p.p999 * 1e3);
  fmt::print("expected in the queue (M/G/c): {:.2f} ms\n", o.expected_queue * 1e3);
  fmt::print("prefix cache: {} of {} prompts, {:.1f}% of their tokens, {} evictions; preemptions: {}\n", s.prefix_hits,
             s.prefix_queries, 100 * share(s.prefix_hit_tokens, s.prefix_query_tokens), s.evictions, s.preemptions);
  if (s.disk.entries > 0)
    fmt::print("on disk: {} prompts, {} tokens read; {} states written, {} dropped, {} failed; {} files, {:.1f} MB\n",
               s.disk.hits, s.disk.hit_tokens, s.disk.written, s.disk.dropped, s.disk.failed, s.disk.entries,
               static_cast<double>(s.disk.bytes) / 1e6);
  if (!s.drafted.empty() && s.drafted[0] > 0) {
    fmt::print("drafts right, by position:");
    for (size_t i = 0; i < s.drafted.size() && s.drafted[i] > 0; ++i)
      fmt::print(" {:.1f}%", 100 * share(s.accepted[i], s.drafted[i]));
    fmt::print("\n");
  }
  fmt::print(
      "{} steps; outside of the model {:.2f}% of their time; cache reserved at most {} of {} tokens; peak memory "
      "{:.1f} MB, planned: {}\n",
      s.steps, 100 * overhead(s), o.most_reserved, s.cache_tokens, static_cast<double>(peak_memory()) / 1e6,
      to_string(o.plan));
}

json::object to_json(const Outcome& o) {
  const EngineStats& s = o.stats;
  json::array acceptance;
  for (size_t i = 0; i < s.drafted.size(); ++i)
    acceptance.push_back(json::object{{"drafted", s.drafted[i]}, {"accepted", s.accepted[i]}});
  return {{"rate", o.rate},
          {"seconds", o.seconds},
          {"failed", o.failed},
          {"prompt_tokens", o.prompt_tokens},
          {"output_tokens", o.output_tokens},
          {"output_tokens_per_second", static_cast<double>(o.output_tokens) / o.seconds},
          {"first_token_seconds", to_json(percentiles(o.first_token))},
          {"inter_token_seconds", to_json(percentiles(o.gap))},
          {"queue_seconds", to_json(percentiles(o.queue))},
          {"expected_queue_seconds",
           std::isfinite(o.expected_queue) ? json::value(o.expected_queue) : json::value(nullptr)},
          {"request_seconds", to_json(percentiles(o.total))},
          {"prefix_queries", s.prefix_queries},
          {"prefix_hits", s.prefix_hits},
          {"prefix_query_tokens", s.prefix_query_tokens},
          {"prefix_hit_tokens", s.prefix_hit_tokens},
          {"disk", json::object{{"hits", s.disk.hits},
                                {"hit_tokens", s.disk.hit_tokens},
                                {"written", s.disk.written},
                                {"dropped", s.disk.dropped},
                                {"failed", s.disk.failed},
                                {"damaged", s.disk.damaged},
                                {"files", s.disk.entries},
                                {"bytes", s.disk.bytes}}},
          {"evictions", s.evictions},
          {"preemptions", s.preemptions},
          {"drafts", acceptance},
          {"steps", s.steps},
          {"step_seconds", s.step_seconds},
          {"model_seconds", s.model_seconds},
          {"overhead", overhead(s)},
          {"most_reserved_cache_tokens", o.most_reserved},
          {"cache_tokens", s.cache_tokens},
          {"peak_memory_bytes", peak_memory()},
          {"planned_bytes", o.plan.cache + o.plan.windows + o.plan.snapshots}};
}

void draw_heat_map(OutputFile& file, const Arguments& a, const std::vector<Outcome>& outcomes) {
  std::vector<HeatMap> maps;
  const auto add = [&](const char* title, std::vector<double> Outcome::*member, bool expected) {
    HeatMap& map = maps.emplace_back();
    map.title = title;
    for (const Outcome& o : outcomes) {
      HeatMapColumn& column = map.columns.emplace_back();
      column.name = fmt::format("{}", o.rate);
      for (const double v : o.*member) column.values.push_back(1e3 * v);
      if (expected) column.expected = 1e3 * o.expected_queue;
    }
  };
  add("Time to the first token", &Outcome::first_token, false);
  add("Time between tokens", &Outcome::gap, false);
  add("Time of the whole request", &Outcome::total, false);
  add("Time in the queue", &Outcome::queue, true);
  const std::string svg =
      heat_maps_svg(fmt::format("{}: {} requests each, up to {} at once, prompts of {} tokens, answers of {}",
                                a.engine.model.filename().string(), a.requests, a.engine.max_requests, a.prompt_tokens,
                                a.output_tokens),
                    "Requests a second", maps);
  file.write(std::as_bytes(std::span(svg)));
  file.commit();
}

void run(Arguments a) {
  a.model.give(a.engine);
  a.disk.give(a.engine);
  a.engine.prefix_cache = !a.no_prefix_cache;
  a.engine.max_waiting = 1 << 20;
  a.engine.speculate = parse_speculate(a.speculate);
  std::optional<OutputFile> picture;  // opened before the runs, which may take long
  if (!a.heat_map.empty()) picture.emplace(a.heat_map);
  std::vector<Outcome> outcomes;
  if (!a.trace.empty()) {
    std::vector<Arrival> arrivals = read_arrivals(a.trace);
    for (Arrival& arrival : arrivals) {
      if (arrival.prompt_tokens == 0) arrival.prompt_tokens = a.prompt_tokens;
      if (arrival.max_tokens == 0) arrival.max_tokens = a.output_tokens;
    }
    outcomes.push_back(replay(a, arrivals, 0));
  } else {
    for (const double rate : a.rates) {
      if (!(rate > 0 && rate <= 1e6))
        fail(ErrorKind::invalid_argument, "--rate is {}, expected more than 0, at most 1000000", rate);
      outcomes.push_back(replay(a, draw(a, rate), rate));
    }
  }
  if (picture) draw_heat_map(*picture, a, outcomes);
  if (!a.json) {
    for (const Outcome& o : outcomes) print(o);
    return;
  }
  json::array list;
  for (const Outcome& o : outcomes) list.push_back(to_json(o));
  std::puts(json::serialize(json::object{{"model", a.engine.model.string()}, {"runs", list}}).c_str());
}

}  // namespace

void add_bench_serve_offline(CLI::App& bench) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = bench.add_subcommand(
      "serve-offline", "Requests that arrive as in a trace, answered in this process: latencies, rates, cache hits");
  a->model.add_to(*c, false);
  c->add_option("--requests", a->requests, "Requests")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  c->add_option("--rate", a->rates, "Arrivals a second (Poisson); several rates are run one after the other")
      ->delimiter(',')
      ->capture_default_str();
  c->add_option("--burst", a->burst, "So many arrive at once, at the same rate overall")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  c->add_option("--arrivals", a->trace, "File of arrivals instead, a JSON object in each line (docs/command-line.md)");
  c->add_option("--prompt-tokens", a->prompt_tokens, "Median length of the prompts")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--output-tokens", a->output_tokens, "Median length of the answers")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--spread", a->spread, "Standard deviation of the logarithm of both; 0 = all alike")
      ->check(number_in(0, 3))
      ->capture_default_str();
  c->add_option("--shared-tokens", a->shared_tokens, "Tokens that all prompts begin with")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  c->add_option("--temperature", a->temperature, "Of the answers, whose tokens are drawn")
      ->check(number_in(0, 100))
      ->capture_default_str();
  c->add_option("--seed", a->seed, "Of arrivals, lengths and prompts")->capture_default_str();
  c->add_option("--max-requests", a->engine.max_requests, "Requests that run at once")->capture_default_str();
  c->add_option("--step-tokens", a->engine.step_tokens, "Rows of a step")->capture_default_str();
  c->add_option("--cache-tokens", a->engine.cache_tokens,
                "Tokens of all running requests; 0 = 4096 for each of --max-requests")
      ->capture_default_str();
  c->add_option("--batch-window-ms", a->engine.batch_window_ms, "An idle engine waits so long for company")
      ->capture_default_str();
  c->add_option("--speculate", a->speculate, "Drafts that a step verifies: off, auto or a number")
      ->capture_default_str();
  a->disk.add_to(*c);
  c->add_flag("--no-prefix-cache", a->no_prefix_cache, "Run every prompt from its start");
  c->add_option(
      "--heat-map", a->heat_map,
      "Write an SVG: how latencies are spread at each --rate, with medians and 99th percentiles, and the time in "
      "the queue beside what queueing theory expects");
  c->add_flag("--json", a->json, "Print JSON");
  c->callback([a] { run(*a); });
}

}  // namespace hadal
