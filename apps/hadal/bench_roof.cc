// hadal bench roof: read bandwidth and multiplication rates by number of threads.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "bench.h"
#include "checkpoint/json.h"
#include "engine/backend.h"
#include "model_options.h"
#include "ops/cpu/roof.h"

namespace hadal {
namespace {

using cpu::Multiply;

struct Arguments {
  std::string isa;
  int threads = 0;
  int megabytes = 1024;
  int repeats = 9;
  bool json = false;
};

struct Row {
  int threads = 0;
  double read = 0, fp32 = 0, bf16 = 0, int8 = 0;  // a second; 0 = no such instruction
};

// The best of some runs: everything that disturbs a run makes it slower.
Row measure(const Arguments& a, Isa isa, int threads, std::span<const std::byte> memory) {
  ThreadPool pool(threads);
  Row row{threads};
  const auto multiply = [&](Multiply kind) {
    return has_multiply(isa, kind) ? cpu::multiply_rate(pool, isa, kind) : 0;
  };
  for (int i = 0; i < a.repeats; ++i) {
    row.read = std::max(row.read, cpu::read_rate(pool, memory, isa));
    row.fp32 = std::max(row.fp32, multiply(Multiply::fp32));
    row.bf16 = std::max(row.bf16, multiply(Multiply::bf16));
    row.int8 = std::max(row.int8, multiply(Multiply::int8));
  }
  return row;
}

void print(const std::vector<Row>& rows, Isa isa) {
  fmt::print("instruction set {}, {} CPUs; rates of all threads together, best of the runs\n\n", to_string(isa),
             usable_cpus());
  fmt::print("threads  read GB/s  fp32 GFLOP/s  bf16 GFLOP/s  int8 GOP/s\n");
  const auto rate = [](double r) { return r == 0 ? std::string("-") : fmt::format("{:.1f}", r / 1e9); };
  for (const Row& row : rows)
    fmt::print("{:7}  {:>9}  {:>12}  {:>12}  {:>10}\n", row.threads, rate(row.read), rate(row.fp32), rate(row.bf16),
               rate(row.int8));
}

void print_json(const std::vector<Row>& rows, Isa isa) {
  json::array list;
  for (const Row& row : rows)
    list.push_back(json::object{{"threads", row.threads},
                                {"read_bytes_per_second", row.read},
                                {"fp32_flops_per_second", row.fp32},
                                {"bf16_flops_per_second", row.bf16},
                                {"int8_operations_per_second", row.int8}});
  const json::value out = json::object{{"isa", std::string(to_string(isa))}, {"cpus", usable_cpus()}, {"roof", list}};
  std::puts(json::serialize(out).c_str());
}

void run(const Arguments& a) {
  use_isa(Backend::cpu, a.isa);
  const Isa isa = process_isa();
  const int most = a.threads > 0 ? a.threads : usable_cpus();
  expect_memory(fmt::format("--megabytes {}", a.megabytes), int64_t{a.megabytes} << 20, "read less");
  const TouchedMemory memory(static_cast<size_t>(a.megabytes) << 20);
  std::vector<Row> rows;
  // 1, 2, 4, .. and the largest.
  for (int threads = 1;; threads = std::min(2 * threads, most)) {
    rows.push_back(measure(a, isa, threads, memory.bytes()));
    if (threads == most) break;
  }
  a.json ? print_json(rows, isa) : print(rows, isa);
}

}  // namespace

void add_bench_roof(CLI::App& bench) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("roof", "Read bandwidth and multiplication rates of this machine");
  add_isa_option(*command, a->isa);
  command->add_option("--threads", a->threads, "Up to this many threads (default: all CPUs)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--megabytes", a->megabytes, "Memory to read; take several times the last-level cache")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeats", a->repeats, "Runs of which the best counts")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print JSON");
  command->callback([a] { run(*a); });
}

}  // namespace hadal
