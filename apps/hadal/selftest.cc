// hadal selftest: every operator of a backend against the reference, on this machine.
#include "base/error.h"
#include "checkpoint/json.h"
#include "commands.h"
#include "engine/backend.h"
#include "model_options.h"
#include "ops/testing/runner.h"
#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/selfcheck.h"
#endif

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>

namespace hadal {
namespace {

using testing::CaseResult;
using testing::OperatorCases;

struct Arguments {
  std::string device = "cpu";
  std::string op;
  std::string isa;
  uint64_t seed = 0;
  int threads = 0;
  bool json = false;
  bool list = false;
};

struct OperatorResult {
  const char* op = nullptr;
  std::vector<CaseResult> runs;

  int64_t failed() const {
    return std::count_if(runs.begin(), runs.end(), [](const CaseResult& run) { return !run.passed; });
  }
  double worst() const {
    double worst = 0;
    for (const CaseResult& run : runs) worst = std::max(worst, run.worst);
    return worst;
  }
};

std::vector<OperatorCases> chosen_operators(const std::string& name) {
  std::vector<OperatorCases> chosen;
  std::string names;
  for (const OperatorCases& entry : testing::operator_cases()) {
    if (name.empty() || name == entry.op) chosen.push_back(entry);
    names += (names.empty() ? "" : ", ") + std::string(entry.op);
  }
  if (chosen.empty()) fail(ErrorKind::invalid_argument, "unknown operator '{}', expected one of {}", name, names);
  return chosen;
}

void print_list(const std::vector<OperatorCases>& operators) {
  for (const OperatorCases& entry : operators)
    for (const auto& test : entry.make(0)) fmt::print("{}: {}\n", entry.op, test->name());
}

struct BlockResult {
  const char* name = nullptr;
  std::vector<std::string> failures;
};

// What lies below the operators of a backend and shows in no case of one.
std::vector<BlockResult> check_blocks([[maybe_unused]] const testing::Device& device,
                                      [[maybe_unused]] Backend backend) {
#ifdef HADAL_HAVE_CUDA
  if (backend == Backend::cuda_portable) {
    const std::unique_ptr<Context> bf16 = device.context(Numerics::bf16);
    return {{"codecs", cuda::check_codecs(CudaContext::of(*bf16))},
            {"row invariance", cuda::check_row_invariance(CudaContext::of(*bf16))}};
  }
  if (backend == Backend::cuda) {
    const std::unique_ptr<Context> bf16 = device.context(Numerics::bf16), fp8 = device.context(Numerics::fp8);
    return {{"codecs", cuda::check_codecs(CudaContext::of(*bf16))},
            {"row invariance", cuda::check_row_invariance(CudaContext::of(*bf16))},
            {"fp8 products", cuda::check_fp8_linear(CudaContext::of(*fp8))}};
  }
#endif
  return {};
}

void print_json(const Arguments& a, const std::vector<BlockResult>& blocks,
                const std::vector<OperatorResult>& results) {
  json::array checks;
  for (const BlockResult& block : blocks)
    checks.push_back(
        json::object{{"check", block.name}, {"failures", json::array(block.failures.begin(), block.failures.end())}});
  json::array operators;
  for (const OperatorResult& result : results) {
    json::array failures;
    for (const CaseResult& run : result.runs)
      if (!run.passed)
        failures.push_back(json::object{
            {"case", run.name}, {"numerics", std::string(to_string(run.numerics))}, {"message", run.message}});
    operators.push_back(json::object{{"op", result.op},
                                     {"runs", result.runs.size()},
                                     {"failed", result.failed()},
                                     {"worst_error_over_tolerance", result.worst()},
                                     {"failures", failures}});
  }
  const json::value out =
      json::object{{"device", a.device}, {"seed", a.seed}, {"checks", checks}, {"operators", operators}};
  std::puts(json::serialize(out).c_str());
}

void run(Arguments& a, bool fresh_seed) {
  const std::vector<OperatorCases> operators = chosen_operators(a.op);
  if (a.list) return print_list(operators);
  if (fresh_seed) a.seed = std::random_device()();

  const Backend backend = parse_backend(a.device);
  use_isa(backend, a.isa);
  testing::Device device;
  device.operators = &operators_of(backend);
  device.context = [&](Numerics numerics) { return make_context(backend, numerics, a.threads); };
  if (on_gpu(backend)) std::erase(device.modes, Numerics::fp32);  // its activations are bf16

  device.context(Numerics::bf16);  // fails here, before a table is begun, where the device cannot be used
  if (!a.json)
    fmt::print("device {}, seed {}\n\n{:<18} {:>5} {:>16}\n", a.device, a.seed, "operator", "runs", "error/tolerance");
  int64_t failed = 0, runs = 0;
  std::vector<BlockResult> blocks;
  if (a.op.empty()) blocks = check_blocks(device, backend);
  for (const BlockResult& block : blocks) {
    failed += block.failures.empty() ? 0 : 1;
    ++runs;
    if (a.json) continue;
    fmt::print("{:<18} {:>22} {}\n", block.name, "", block.failures.empty() ? "pass" : "FAIL");
    for (const std::string& failure : block.failures) fmt::print("  {}\n", failure);
  }
  std::vector<OperatorResult> results;
  for (const OperatorCases& entry : operators) {
    const OperatorResult& result = results.emplace_back(entry.op, run_cases(entry.make(a.seed), device));
    failed += result.failed();
    runs += static_cast<int64_t>(result.runs.size());
    if (a.json) continue;
    fmt::print("{:<18} {:>5} {:>16.3g} {}\n", result.op, result.runs.size(), result.worst(),
               result.failed() == 0 ? "pass" : "FAIL");
    for (const CaseResult& run : result.runs)
      if (!run.passed) fmt::print("  {} ({}): {}\n", run.name, to_string(run.numerics), run.message);
    std::fflush(stdout);
  }
  if (a.json) print_json(a, blocks, results);
  if (failed > 0)
    fail(ErrorKind::internal, "{} of {} runs failed; repeat with --device {} --seed {}", failed, runs, a.device,
         a.seed);
}

}  // namespace

void add_selftest(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("selftest", "Check every operator of a backend against the reference");
  command->add_option("--device", a->device, "Backend to check")
      ->check(CLI::IsMember({"cpu", "cuda", "cuda:portable", "reference"}))
      ->capture_default_str();
  command->add_option("--op", a->op, "One operator only");
  CLI::Option* seed = command->add_option("--seed", a->seed, "Seed of the inputs; a fresh one is drawn and printed");
  command->add_option("--threads", a->threads, "Threads of the cpu backend, 0 = all CPUs")->check(CLI::Range(0, 1024));
  add_isa_option(*command, a->isa);
  command->add_flag("--list", a->list, "List the cases and stop");
  command->add_flag("--json", a->json, "Print the result as JSON");
  command->callback([a, seed] { run(*a, seed->count() == 0); });
}

}  // namespace hadal
