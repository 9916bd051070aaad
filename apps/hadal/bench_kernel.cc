// hadal bench kernel: time of the operators' cases and of linear layers at the shapes of the release, against the roof
// measured in the same run.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "base/error.h"
#include "bench.h"
#include "checkpoint/json.h"
#include "engine/backend.h"
#include "model_options.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/roof.h"
#include "ops/testing/runner.h"

namespace hadal {
namespace {

using cpu::Multiply;

struct Arguments : ReleaseBench {
  std::string isa, cases = "release";
  int threads = 0;
};

struct Result {
  std::string op, name;
  double warm = 0, cold = 0;  // seconds, best of the runs
  double bytes = 0, flops = 0;
  double read_roof = 0, multiply_roof = 0;

  double bandwidth_share() const { return bytes / cold / read_roof; }
  double multiply_share() const { return flops / warm / multiply_roof; }
};

// Rows are printed as they are measured, since all of them take minutes; JSON comes at the end, whole.
class Results {
 public:
  Results(bool json, std::string header, std::function<std::string(const Result&)> row)
      : json_(json), header_(std::move(header)), row_(std::move(row)) {}

  void add(Result result) {
    list_.push_back(std::move(result));
    if (json_) return;
    if (list_.size() == 1) std::puts(header_.c_str());
    std::puts(row_(list_.back()).c_str());
    std::fflush(stdout);  // also into a file or a pipe
  }
  const std::vector<Result>& list() const { return list_; }

 private:
  bool json_;
  std::string header_;
  std::function<std::string(const Result&)> row_;
  std::vector<Result> list_;
};

// Runs a kernel after itself (warm) and after other memory went through the caches (cold), and takes the roofs between
// the runs: what disturbs the machine then disturbs both.
class Bench {
 public:
  Bench(const Arguments& a, Isa isa) : a_(a), isa_(isa), pool_(a.threads), memory_(size_t{256} << 20) {
    pairs_ = a.numerics != "fp32" && has_multiply(isa, Multiply::bf16);
  }

  template <typename F>
  Result measure(std::string op, std::string name, double bytes, double flops, F&& kernel) {
    Result result{std::move(op), std::move(name)};
    result.bytes = bytes;
    result.flops = flops;
    result.warm = result.cold = 1e30;
    for (int i = 0; i < a_.repeats; ++i) {
      result.multiply_roof = std::max(result.multiply_roof,
                                      cpu::multiply_rate(pool_, isa_, pairs_ ? Multiply::bf16 : Multiply::fp32, 0.3));
      result.read_roof = std::max(result.read_roof, cpu::read_rate(pool_, memory_.bytes(), isa_));
      double begin = seconds_now();
      kernel();
      result.cold = std::min(result.cold, seconds_now() - begin);
      begin = seconds_now();
      kernel();
      result.warm = std::min(result.warm, seconds_now() - begin);
    }
    return result;
  }

 private:
  const Arguments& a_;
  Isa isa_;
  ThreadPool pool_;
  TouchedMemory memory_;
  bool pairs_ = false;
};

void bench_cases(const Arguments& a, CpuContext& context, Bench& bench, Results& results) {
  for (const auto& entry : testing::operator_cases()) {
    if (!a.op.empty() && a.op != entry.op) continue;
    for (const auto& test : entry.make(1)) {
      testing::Backend backend(cpu_operators(), context);
      const testing::Prepared prepared = test->prepare(backend);
      const testing::Work work = test->work();
      results.add(bench.measure(entry.op, test->name(), work.bytes, work.flops, prepared.run));
      context.reset_step();
    }
  }
}

// Weights of the release that make up nearly all bytes of a token.
struct Shape {
  const char* name;
  WeightFormat format;
  int n, k;
};
constexpr Shape kShapes[] = {
    {"expert w1 mxfp4", WeightFormat::mxfp4, 2304, 5120},     {"expert w2 mxfp4", WeightFormat::mxfp4, 5120, 2304},
    {"shared w1 fp8", WeightFormat::fp8_block32, 2304, 5120}, {"wq_b fp8", WeightFormat::fp8_block32, 32768, 1280},
    {"wo_b fp8", WeightFormat::fp8_block32, 5120, 8192},      {"head bf16", WeightFormat::bf16, 129280, 5120},
};
constexpr int kMostHeadRows = 64;  // of a step that decodes

// Random bits as a checkpoint holds them: any FP4 codes; E4M3 codes below 2, so that none is NaN; BF16 values from 2^-7 to 2.
// A BF16 value may not be of any size: where it or its product is below 2^-126, an FMA of fp32 numbers calls microcode on
// Intel processors, and a kernel is up to a hundred times slower than on any weights that a model has.
uint64_t weight_bits(WeightFormat format, uint64_t random) {
  switch (format) {
    case WeightFormat::mxfp4: return random;
    case WeightFormat::fp8_block32: return random & 0xbfbfbfbfbfbfbfbfu;
    case WeightFormat::bf16: return (random & 0xbfffbfffbfffbfffu) | 0x3c003c003c003c00u;
    case WeightFormat::f32: return (random & 0xbfffffffbfffffffu) | 0x3c0000003c000000u;
  }
  return 0;
}

void bench_linears(const Arguments& a, CpuContext& context, Bench& bench, Results& results) {
  if (!a.op.empty() && a.op != "linear") return;
  testing::Random random(1);
  for (const Shape& shape : kShapes) {
    const auto bytes = static_cast<size_t>(testing::weight_bytes(shape.format, shape.n, shape.k));
    std::vector<uint64_t> data(bytes / 8 + 1);
    for (auto& word : data) word = weight_bits(shape.format, random.bits());
    const std::vector<uint8_t> scale(static_cast<size_t>(shape.n) * static_cast<size_t>(shape.k) / 32, 127);
    const Weight weight{shape.format, shape.n, shape.k, data.data(), scale.data()};
    const bool head = shape.format == WeightFormat::bf16;
    constexpr int kRows[] = {1, 2, 4, 8, 16, 32, 128, 512};
    const std::vector<int> all(std::begin(kRows), std::end(kRows));
    for (const int rows : a.rows.empty() ? all : a.rows) {
      const double flops = 2.0 * rows * shape.n * shape.k;
      if (head && rows > kMostHeadRows) {
        if (!a.rows.empty())
          fmt::print(stderr, "{} x {} is left out: of a prompt's rows the head sees the last, and here up to {} rows\n",
                     shape.name, rows, kMostHeadRows);
        continue;
      }
      Scratch scratch(context);
      std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(shape.k));
      for (float& v : x) v = round_bf16(static_cast<float>(random.uniform()) - 0.5f);
      float* y = scratch.get<float>(int64_t{rows} * shape.n);
      const auto layout = head ? cpu::Layout::split : cpu::layout_of(context, weight);
      const cpu::Input input =
          cpu::prepare(context, scratch, x.data(), shape.k, rows, shape.k, layout, cpu::InputRounding::none);
      results.add(
          bench.measure("linear", fmt::format("{} x {}", shape.name, rows), static_cast<double>(bytes), flops, [&] {
            cpu::multiply(context,
                          {{.weight = &weight, .x = input, .rows = rows, .y = y, .y_stride = shape.n, .round = !head}});
          }));
    }
  }
}

std::string table_header(Isa isa, int threads) {
  return fmt::format(
      "instruction set {}, {} threads; best of the runs; shares are of the roofs of the same run\n\n"
      "{:<18} {:<34} {:>10} {:>10} {:>8} {:>6} {:>9} {:>6}",
      to_string(isa), threads, "operator", "case", "cold us", "warm us", "GB/s", "share", "GFLOP/s", "share");
}

std::string table_row(const Result& r) {
  return fmt::format("{:<18} {:<34.34} {:>10.1f} {:>10.1f} {:>8.2f} {:>5.0f}% {:>9.1f} {:>5.0f}%", r.op, r.name,
                     r.cold * 1e6, r.warm * 1e6, r.bytes / r.cold / 1e9, 100 * r.bandwidth_share(),
                     r.flops / r.warm / 1e9, 100 * r.multiply_share());
}

void print_json(const std::vector<Result>& results, Isa isa, int threads) {
  json::array list;
  for (const Result& r : results)
    list.push_back(json::object{{"operator", r.op},
                                {"case", r.name},
                                {"cold_seconds", r.cold},
                                {"warm_seconds", r.warm},
                                {"bytes", r.bytes},
                                {"flops", r.flops},
                                {"read_roof_bytes_per_second", r.read_roof},
                                {"multiply_roof_flops_per_second", r.multiply_roof},
                                {"share_of_read_roof", r.bandwidth_share()},
                                {"share_of_multiply_roof", r.multiply_share()}});
  const json::value out = json::object{{"isa", std::string(to_string(isa))}, {"threads", threads}, {"kernels", list}};
  std::puts(json::serialize(out).c_str());
}

// On a device whose operators run on their own: time between marks around a call, after other memory went through the
// caches and again right after it.
void run_test_cases(const Arguments& a) {
  const Backend device = parse_backend(a.device);
  const std::unique_ptr<Context> context = make_context(device, parse_numerics(a.numerics), a.threads);
  const std::unique_ptr<TimeMarks> marks = context->time_marks();
  constexpr size_t kFlush = size_t{192} << 20;
  auto* from = static_cast<std::byte*>(context->allocate_cache(2 * kFlush));
  const deepseek_v41::Roof roof = h200_roof();
  const auto floor_of = [&](const Result& r) { return roof.seconds({r.flops, r.bytes}); };
  Results results(
      a.json,
      fmt::format("{}; medians of {}, launches included\n\n{:<18} {:<34} {:>10} {:>10} {:>10} {:>12} {:>12}",
                  context->device_name(), a.repeats, "operator", "case", "cold us", "warm us", "floor us", "bytes",
                  "flops"),
      [&](const Result& r) {
        return fmt::format("{:<18} {:<34.34} {:>10.1f} {:>10.1f} {:>10.2f} {:>12.3g} {:>12.3g}", r.op, r.name,
                           1e6 * r.cold, 1e6 * r.warm, 1e6 * floor_of(r), r.bytes, r.flops);
      });
  for (const auto& entry : testing::operator_cases()) {
    if (!a.op.empty() && a.op != entry.op) continue;
    for (const auto& test : entry.make(1)) {
      testing::Backend backend(operators_of(device), *context);
      const testing::Prepared prepared = test->prepare(backend);
      Result result{entry.op, test->name()};
      prepared.run();
      std::vector<double> warm, cold;
      for (int i = 0; i < a.repeats; ++i) {
        context->copy_on_device(from + kFlush, from, kFlush);
        for (int j = 0; j < 2; ++j) {
          marks->mark();
          prepared.run();
        }
        marks->mark();
        const std::vector<double> seconds = marks->seconds();
        cold.push_back(seconds[0]);
        warm.push_back(seconds[1]);
      }
      result.cold = median_of(cold);
      result.warm = median_of(warm);
      result.bytes = test->work().bytes;
      result.flops = test->work().flops;
      results.add(std::move(result));
      context->reset_step();
    }
  }
  if (!a.json) return;
  json::array list;
  for (const Result& r : results.list())
    list.push_back(json::object{{"name", r.op},
                                {"shape", r.name},
                                {"ms", 1e3 * r.cold},
                                {"burst_ms", 1e3 * r.warm},
                                {"floor_ms", 1e3 * floor_of(r)},
                                {"bytes", r.bytes},
                                {"flops", r.flops}});
  std::puts(json::serialize(json::object{{"card", context->device_name()}, {"kernels", list}}).c_str());
}

// An option that would have no effect is a mistake.
void check_options(const Arguments& a, const CLI::App& command) {
  const bool cpu = a.device == "cpu", release = !cpu && a.cases == "release", linear = a.op == "linear";
  std::string names;
  bool known = a.op.empty() || (cpu && linear);
  for (const testing::OperatorCases& entry : testing::operator_cases()) {
    known = known || a.op == entry.op;
    names += fmt::format("{}, ", entry.op);
  }
  if (!known)
    fail(ErrorKind::invalid_argument, "no operator is called '{}'; --op takes one of {}and on a CPU linear", a.op,
         names);
  if (!release)
    for (const char* name : {"--config", "--emulate-rank", "--context", "--peers", "--check"})
      if (command.get_option(name)->count() > 0)
        fail(ErrorKind::invalid_argument, "{} is for the release cases on a GPU; leave it out, or give --device cuda{}",
             name, cpu ? "" : " without --cases tests");
  if (cpu && command.get_option("--cases")->count() > 0)
    fail(ErrorKind::invalid_argument, "--cases is for a GPU, a CPU runs all; leave it out, or give --device cuda");
  if (a.rows.empty() || release) return;
  if (!cpu)
    fail(ErrorKind::invalid_argument, "--cases tests has rows of its own; leave --rows out");
  else if (!a.op.empty() && !linear)
    fail(ErrorKind::invalid_argument,
         "--rows are those of the linear layers on a CPU, {} has cases of its own; leave --rows out, or take --op "
         "linear",
         a.op);
  const int64_t rows = *std::max_element(a.rows.begin(), a.rows.end());
  int64_t values = 0;  // of the widest layer: x, what is made of it, and y
  for (const Shape& shape : kShapes)
    if (shape.format != WeightFormat::bf16) values = std::max(values, int64_t{2} * shape.k + shape.n);
  expect_memory(fmt::format("--rows {}", rows), rows * values * static_cast<int64_t>(sizeof(float)), "take fewer");
}

void run(const Arguments& a) {
  const bool cpu = a.device == "cpu";
  use_isa(parse_backend(a.device), a.isa);
  if (!cpu && a.cases != "tests") return run_release_bench(a);
  if (!cpu) return run_test_cases(a);
  const Isa isa = process_isa();
  CpuContext context(parse_numerics(a.numerics), a.threads);
  Bench bench(a, isa);
  const int threads = context.pool().size();
  Results results(a.json, table_header(isa, threads), table_row);
  bench_cases(a, context, bench, results);
  bench_linears(a, context, bench, results);
  if (a.json) print_json(results.list(), isa, threads);
}

}  // namespace

void add_bench_kernel(CLI::App& bench) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("kernel", "Time of the kernels, cold and warm, and their share of the roof");
  add_isa_option(*command, a->isa);
  command->add_option("--op", a->op, "One operator, or 'linear' for the release's linear layers (default: all)");
  command->add_option("--device", a->device, "cpu, cuda or cuda:portable")
      ->check(CLI::IsMember({"cpu", "cuda", "cuda:portable"}))
      ->capture_default_str();
  command->add_option("--numerics", a->numerics, "bf16, fp32, official or fp8")->capture_default_str();
  command->add_option("--threads", a->threads, "CPU threads (default: all)")->check(CLI::Range(1, 4096));
  command
      ->add_option(
          "--rows", a->rows,
          "Rows: of the linear layers on a CPU (of the head up to 64); on a GPU of a step, up to 128 as requests "
          "that decode, more as a chunk of one prompt (default there: 1,32,128,4096)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 16));
  command
      ->add_option("--cases", a->cases,
                   "On a GPU: release (operators as a step of --config calls them) or tests (the small cases of the "
                   "self-test)")
      ->check(CLI::IsMember({"release", "tests"}))
      ->capture_default_str();
  command->add_option("--config", a->config, "Release cases: configuration, by file or name")->capture_default_str();
  command->add_option("--emulate-rank", a->rank, "Release cases: one of several ranks, as in ep4")
      ->capture_default_str();
  command->add_option("--context", a->context, "Release cases: tokens that requests stand at")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  command->add_option("--peers", a->peers,
                      "Release cases: CSV file with times of other kernels (columns kernel, shape, peer, median_ms)");
  command->add_option("--repeats", a->repeats, "Runs; the best counts on a CPU, the median on a GPU")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_flag(
      "--check", a->check,
      "Release cases: also run the self-test's cases of each operator, and give the largest error over its "
      "tolerance with --json");
  command->add_flag("--json", a->json, "Print JSON");
  command->callback([a, command] {
    check_options(*a, *command);
    run(*a);
  });
}

}  // namespace hadal
