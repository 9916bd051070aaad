// hadal synth: a random checkpoint of any configuration in the published layout, for tests and benchmarks.
#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/synth_checkpoint.h"
#include "commands.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>

namespace hadal {
namespace {

struct Arguments {
  std::string config;
  std::string directory;
  SynthOptions options;
  double shard_gb = 5;
  bool json = false;
};

void run(Arguments& a) {
  a.options.max_shard_bytes = size_t(a.shard_gb * 1e9);
  const std::string text = read_text_file(a.config);
  const V41Config config = V41Config::parse(text, a.config);
  const SynthSummary s = write_synthetic_checkpoint(config, text, a.directory, a.options);
  const double rate = s.seconds > 0 ? double(s.bytes_written) * 1e-6 / s.seconds : 0;
  if (a.json) {
    const json::value out = {
        {"directory", a.directory},         {"seed", a.options.seed}, {"tensors", s.tensors},
        {"payload_bytes", s.payload_bytes}, {"shards", s.shards},     {"shards_kept", s.shards_kept},
        {"bytes_written", s.bytes_written}, {"seconds", s.seconds},   {"megabytes_per_second", rate}};
    std::puts(json::serialize(out).c_str());
    return;
  }
  fmt::print("{}: {} tensors, {} bytes in {} shards", a.directory, s.tensors, s.payload_bytes, s.shards);
  if (s.shards_kept > 0) fmt::print(", {} of them were already there", s.shards_kept);
  if (s.bytes_written > 0)
    fmt::print("; wrote {:.2f} GB in {:.1f} s, {:.0f} MB/s", double(s.bytes_written) * 1e-9, s.seconds, rate);
  fmt::print("\n");
}

}  // namespace

void add_synth(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("synth", "Write a random checkpoint of a configuration, in the published layout");
  command->add_option("config", a->config, "Configuration: an official config.json")->required();
  command->add_option("directory", a->directory, "Folder to write; a stopped run goes on when repeated")->required();
  command->add_option("--seed", a->options.seed, "Seed of the weights")->capture_default_str();
  a->options.threads = int(std::clamp(std::thread::hardware_concurrency(), 1u, 64u));
  command->add_option("--threads", a->options.threads, "Threads; the result does not depend on it")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--shard-gb", a->shard_gb, "Largest shard in GB (a single larger tensor is not split)")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print a JSON summary");
  command->callback([a] { run(*a); });
}

}  // namespace hadal
