// hadal bench prefill: the last chunk of a long prompt, again and again over the same state.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "bench.h"
#include "bench_steps.h"

namespace hadal {
namespace {

struct Arguments {
  StepBenchOptions steps;
  std::vector<std::string> modes = {"full"};
  int64_t context = 8192;
  int64_t cached = -1;
  int tokens = 4096;
};

void run(Arguments& a) {
  if (a.tokens > a.context)
    fail(ErrorKind::invalid_argument,
         "a context of {} tokens cannot end with a chunk of {}; take fewer --tokens or a longer --context", a.context,
         a.tokens);
  if (a.cached < 0) a.cached = a.context - a.tokens;
  if (a.cached + a.tokens != a.context)
    fail(ErrorKind::invalid_argument,
         "{} cached tokens and {} new ones do not make a context of {}; leave --cached out, or give --context {}",
         a.cached, a.tokens, a.context, a.cached + a.tokens);
  StepBench bench(a.steps);
  bench.expect_context(a.context);
  const int page_tokens = bench.model().cache_layout().page_tokens;
  // One page more: a prompt that begins inside a page copies it.
  const auto pools = bench.make_pools(1, static_cast<int>((a.context + page_tokens - 1) / page_tokens) + 1);
  bench.expect_rows(a.tokens);
  if (!a.steps.json) fmt::print("{}\n\n", bench.describe());

  for (const std::string& name : a.modes) {
    const StepTimes times = time_prefill(bench, *pools, name, a.context, a.tokens);
    if (!a.steps.json) {
      fmt::print("prefill {}: {} tokens after {}\n", name, a.tokens, a.cached);
      bench.print(times);
      continue;
    }
    json::object result = bench.result(times);
    result["mode"] = "prefill " + name;
    result["context"] = a.context;
    result["cached"] = a.cached;
    std::puts(json::serialize(result).c_str());
    std::fflush(stdout);
  }
}

}  // namespace

StepTimes time_prefill(StepBench& bench, CachePools& pools, const std::string& mode, int64_t context, int tokens) {
  const std::vector<int32_t> before = bench.random_tokens(context - tokens), chunk = bench.random_tokens(tokens);
  RequestState state(pools);
  if (!before.empty()) {
    state.propose(before);
    state.commit(context - tokens);
  }
  state.begin_prompt(context, parse_prefill_mode(mode), bench.config().sliding_window);
  const Snapshot saved = state.snapshot();
  const SegmentRequest request{&state, LogitsWanted::last};
  return bench.measure(
      {&request, 1}, [&] { state.propose(chunk); }, [&] { state.restore(saved); });
}

void add_bench_prefill(CLI::App& bench) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("prefill", "Time of one prompt chunk of a whole model, by stage");
  a->steps.add_to(*command);
  command
      ->add_option("--prefill", a->modes,
                   "Rows that decoder layers run: full, exact, bounded; several measure one after the other")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"full", "exact", "bounded"}))
      ->capture_default_str();
  command->add_option("--tokens", a->tokens, "Tokens of the chunk")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--context", a->context, "Length of the prompt, which ends with the chunk")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  command->add_option("--cached", a->cached, "Tokens before the chunk (default: the rest of the context)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  command->callback([a] { run(*a); });
}

}  // namespace hadal
