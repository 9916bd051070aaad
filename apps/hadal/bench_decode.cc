// hadal bench decode: one token a step for each of several requests with a context behind them.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>

#include "base/error.h"
#include "bench.h"
#include "bench_steps.h"
#include "engine/warm_up.h"

namespace hadal {
namespace {

struct Arguments {
  StepBenchOptions steps;
  std::vector<int> batches = {1};
  std::vector<int64_t> contexts;  // none: 8192, or as far as the model goes
};

void measure(const Arguments& a, StepBench& bench, CachePools& pools, int batch, int64_t context) {
  const StepTimes times = time_decode(bench, pools, batch, context);
  if (!a.steps.json) {
    fmt::print("decode: batch {}, context {}\n", batch, context);
    bench.print(times);
    return;
  }
  json::object result = bench.result(times);
  result["mode"] = "decode";
  result["batch"] = batch;
  result["context"] = context;
  std::puts(json::serialize(result).c_str());
  std::fflush(stdout);
}

void run(Arguments& a) {
  StepBench bench(a.steps);
  if (a.contexts.empty())
    a.contexts = {std::clamp<int64_t>(bench.config().max_position_embeddings - bench.steps(), 1, 8192)};
  const int64_t page_tokens = bench.model().cache_layout().page_tokens;
  const int most = *std::max_element(a.batches.begin(), a.batches.end());
  const int64_t longest = *std::max_element(a.contexts.begin(), a.contexts.end());
  bench.expect_context(longest, bench.steps());
  const int64_t grown = longest + bench.steps();
  const auto pools = bench.make_pools(most, static_cast<int>(most * ((grown + page_tokens - 1) / page_tokens)));
  bench.expect_rows(most);
  if (on_gpu(bench.backend()) && a.steps.cuda_graphs == "on") {
    // As an engine does at its start.
    EngineOptions engine;
    engine.max_requests = engine.step_tokens = most;
    MemoryPlan plan;
    warm_up(bench.model(), *pools, engine, 0, plan);
    fmt::print(stderr, "{} CUDA graphs recorded in {:.2f} s, {:.1f} MB; step memory {:.1f} MB\n", plan.graphs,
               plan.warm_up_seconds, 1e-6 * static_cast<double>(plan.graph_bytes),
               1e-6 * static_cast<double>(plan.steps));
  }
  if (!a.steps.json) fmt::print("{}\n\n", bench.describe());
  for (const int batch : a.batches)
    for (const int64_t context : a.contexts) measure(a, bench, *pools, batch, context);
}

}  // namespace

StepTimes time_decode(StepBench& bench, CachePools& pools, int batch, int64_t context) {
  // Requests grow by one token a step; no more than a page's worth of them is reserved by make_pools.
  const std::vector<int32_t> before = bench.random_tokens(context - 1);
  std::deque<RequestState> states;
  std::vector<SegmentRequest> requests;
  for (int i = 0; i < batch; ++i) {
    RequestState& state = states.emplace_back(pools);
    if (!before.empty()) {
      state.propose(before);
      state.commit(context - 1);
    }
    requests.push_back({&state, LogitsWanted::last});
  }
  return bench.measure(
      requests,
      [&] {
        for (RequestState& state : states) state.propose(bench.random_tokens(1));
      },
      [] {});
}

void add_bench_decode(CLI::App& bench) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      bench.add_subcommand("decode", "Time of decode steps of a whole model, by stage; without sampling");
  a->steps.add_to(*command);
  command->add_option("--batch", a->batches, "Requests in a step; several measure one after the other")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      ->add_option(
          "--context", a->contexts,
          "Tokens that each request stands at; several measure one after the other (default: 8192, or as far as the "
          "model goes)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->callback([a] { run(*a); });
}

}  // namespace hadal
