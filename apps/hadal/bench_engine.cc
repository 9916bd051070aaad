// hadal bench engine: the load of `hadal bench serve` without a server, to see what HTTP costs.
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "bench_load.h"
#include "engine/generation.h"
#include "hadal/engine.h"
#include "model_options.h"
#include "text/prompt_v41.h"

namespace hadal {
namespace {

struct EngineLoad : LoadOptions {
  ModelOptions model;
  EngineOptions engine;
  std::string speculate = "off";
};

void run(EngineLoad& o) {
  o.model.give(o.engine);
  o.engine.max_requests = o.concurrency;
  o.engine.speculate = parse_speculate(o.speculate);
  const text::Tokenizer tokenizer = text::Tokenizer::load(o.engine.model);
  Engine engine(o.engine);

  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;
  int64_t tokens = 0;
  std::string error;
  const auto work = [&](int count, int first) {
    for (int i = 0; i < count; ++i) {
      Request r;
      r.prompt = {tokenizer.control(text::v41::bos)};
      const std::vector<text::TokenId> prompt =
          tokenizer.encode_with_special(load_prompt(o.seed, first + i, o.prompt_words));
      r.prompt.insert(r.prompt.end(), prompt.begin(), prompt.end());
      r.max_tokens = o.max_tokens;
      r.ignore_eos = true;
      r.sampling.temperature = o.temperature;
      r.sampling.seed = static_cast<uint64_t>(first) + static_cast<uint64_t>(i);
      std::unique_lock lock(mutex);
      ended.wait(lock, [&] { return running < o.concurrency; });
      ++running;
      lock.unlock();
      engine.submit(std::move(r), [&](const Event& event) {
        if (!event.finished) return;
        const std::lock_guard guard(mutex);
        --running;
        tokens += event.usage.generated_tokens;
        if (event.reason == FinishReason::error) error = event.error;
        ended.notify_all();
      });
    }
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return running == 0; });
  };
  if (o.warm_up > 0) work(o.warm_up, 1'000'000'000);
  tokens = 0;
  const double start = seconds_now(), cpu = process_seconds();
  work(o.requests, 0);
  const double seconds = seconds_now() - start;
  if (!error.empty()) fail(ErrorKind::internal, "{}", error);
  fmt::print("{} requests, {:.2f} s: {:.1f} tokens/s, {} tokens; {:.2f} s of CPU\n", o.requests, seconds,
             static_cast<double>(tokens) / seconds, tokens, process_seconds() - cpu);
}

}  // namespace

void add_bench_engine(CLI::App& bench) {
  auto o = std::make_shared<EngineLoad>();
  CLI::App* c =
      bench.add_subcommand("engine", "The load of bench serve without a server between: what the engine alone does");
  o->model.add_to(*c, false);
  o->LoadOptions::add_to(*c);
  c->add_option("--speculate", o->speculate, "Drafts that a step verifies: off, auto, or a number; as hadal serve")
      ->capture_default_str();
  c->callback([o] { run(*o); });
}

}  // namespace hadal
