// hadal bench stage: where the time of one step goes, of a prompt chunk or of a decode step, as a table and a picture.
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.h"
#include "bench.h"
#include "bench_steps.h"
#include "checkpoint/output_file.h"

namespace hadal {
namespace {

struct Arguments {
  StepBenchOptions steps;
  int tokens = 512;
  int batch = 0;  // 0 = a prompt chunk
  int64_t context = 0;
  std::string plot;
};

void run(Arguments& a) {
  const bool decode = a.batch > 0;
  if (a.context == 0) a.context = decode ? 512 : a.tokens;
  if (!decode && a.context < a.tokens)
    fail(ErrorKind::invalid_argument,
         "a context of {} tokens cannot end with a chunk of {}; take fewer --tokens or a longer --context", a.context,
         a.tokens);
  std::optional<OutputFile> picture;  // opened before the run, which may take long
  if (!a.plot.empty()) picture.emplace(a.plot);
  StepBench bench(a.steps);
  const int64_t growth = decode ? bench.steps() : 0, grown = a.context + growth;
  bench.expect_context(a.context, growth);
  const int64_t page = bench.model().cache_layout().page_tokens;
  const int requests = decode ? a.batch : 1;
  const auto pools = bench.make_pools(requests, static_cast<int>(requests * ((grown + page - 1) / page + 1)));
  bench.expect_rows(decode ? a.batch : a.tokens);
  const StepTimes times = decode ? time_decode(bench, *pools, a.batch, a.context)
                                 : time_prefill(bench, *pools, "full", a.context, a.tokens);
  const std::string title = decode ? fmt::format("Decode step of {} at {} tokens", a.batch, a.context)
                                   : fmt::format("{} tokens of a prompt of {}", a.tokens, a.context);
  if (a.steps.json) {
    json::object result = bench.result(times);
    result["mode"] = decode ? "decode" : "prefill full";
    if (decode) result["batch"] = a.batch;
    result["context"] = a.context;
    std::puts(json::serialize(result).c_str());
  } else {
    fmt::print("{}\n\n{}\n", bench.describe(), title);
    bench.print(times);
  }
  if (picture) {
    const std::string svg = bench.picture(title, times);
    picture->write(std::as_bytes(std::span(svg)));
    picture->commit();
  }
}

}  // namespace

void add_bench_stage(CLI::App& bench) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand(
      "stage", "Time, bytes, operations and share of the roof by stage, of a prompt chunk or a decode step");
  a->steps.add_to(*command);
  CLI::Option* batch =
      command->add_option("--batch", a->batch, "A decode step of so many requests")->check(CLI::Range(1, 1 << 16));
  command->add_option("--tokens", a->tokens, "A prompt chunk of so many tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->excludes(batch)
      ->capture_default_str();
  command->add_option("--context", a->context, "Tokens of the prompt, or of each request (default: the chunk, or 512)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->add_option("--plot", a->plot, "Write a picture of the stages to this file, as SVG");
  command->callback([a] { run(*a); });
}

}  // namespace hadal
