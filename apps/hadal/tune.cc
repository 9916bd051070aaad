// hadal tune: times the tiles of the matrix kernels on this card, and keeps the fastest in a file.
#include <algorithm>
#include <cstdio>
#include <span>

#include "base/error.h"
#include "checkpoint/deepseek_v41_config.h"
#include "checkpoint/output_file.h"
#include "commands.h"
#include "engine/backend.h"
#include "model_options.h"
#include "ops/tuning.h"
#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/linear.h"
#include "ops/cuda/tune.h"
#endif

namespace hadal {
namespace {

struct Arguments {
  std::string config = "v41-flash";
  std::vector<std::string> numerics = {"bf16", "fp8"};
  std::string out;
  std::vector<int> rows = {256, 512, 1024, 2048, 4096};
};

#ifdef HADAL_HAVE_CUDA
struct Named {
  const char* name;
  cuda::TunedLinear linear;
};

// The FP8 weights of a layer of the model.
std::vector<Named> linears_of(const V41Config& c, bool fp8) {
  const int d = c.hidden_size, heads = c.num_attention_heads * c.head_dim, lora = c.o_groups * c.o_lora_rank;
  const int shared = c.moe_intermediate_size * c.n_shared_experts;
  const int engram = c.engram_columns() * c.engram_head_dim;
  std::vector<Named> list = {{"wq_a", {c.q_lora_rank, d}},
                             {"wkv", {c.head_dim, d}},
                             {"wq_b", {heads, c.q_lora_rank}},
                             {"wo_a", {lora, heads / c.o_groups, c.o_groups}},
                             {"wo_b", {d, lora}},
                             {"shared w1, w3", {shared, d}},
                             {"shared w2", {d, shared}},
                             {"Engram", {(c.hc_mult + 1) * d, engram}}};
  // In `fp8` wo_a leaves its results rounded for wo_b.
  if (fp8) list[3].linear.rounded = true;
  return list;
}

void measure(const Arguments& a, Numerics numerics, const V41Config& config, Tuning& tuning) {
  const bool fp8 = numerics == Numerics::fp8;
  for (const auto& [name, linear] : linears_of(config, fp8)) {
    if (linear.k == 0) continue;
    const std::unique_ptr<Context> base = make_context(Backend::cuda, numerics, 0, GpuOptions{.graphs = false});
    cuda::CudaContext& context = cuda::CudaContext::of(*base);
    for (const int rows : a.rows) {
      const std::vector<Tuning::Choice> times = cuda::time_tiles(context, operators_of(Backend::cuda), linear, rows);
      if (times.empty()) continue;
      const auto best =
          std::min_element(times.begin(), times.end(), [](const auto& l, const auto& r) { return l.ms < r.ms; });
      tuning.set({cuda::tuned_kernel(fp8, linear.rounded), linear.n, linear.k, rows}, *best);
      std::string line;
      for (const Tuning::Choice& time : times)
        line += fmt::format("  {} {:.4f}{}", time.name, time.ms, &time == &*best ? "*" : "");
      fmt::print("{:5} {:14} {:6} x {:6} {:5} rows{}\n", to_string(numerics), name, linear.n, linear.k, rows, line);
      std::fflush(stdout);
    }
  }
}
#endif

void run([[maybe_unused]] const Arguments& a) {
#ifdef HADAL_HAVE_CUDA
  const V41Config config = V41Config::load(find_config(a.config));
  if (const std::string reason = cuda::unavailable_reason(); !reason.empty())
    fail(ErrorKind::unsupported, "{}; hadal tune measures a GPU", reason);
  use_tuning("off");
  Tuning tuning;
  tuning.card = cuda::device_info(0).name;
  const std::filesystem::path path = a.out.empty() ? tuning_file_of(tuning.card) : std::filesystem::path(a.out);
  if (path.has_parent_path()) {
    std::error_code ignored;  // the file says what is wrong
    std::filesystem::create_directories(path.parent_path(), ignored);
  }
  OutputFile file(path);  // before the measurement, which takes a while
  fmt::print("ms of every tile, sustained; * is kept\n");
  for (const std::string& mode : a.numerics) measure(a, parse_numerics(mode), config, tuning);
  if (tuning.choices().empty())
    fail(ErrorKind::invalid_data, "no weight of {} has tiles to choose among; nothing is written", a.config);
  const std::string text = tuning.text();
  file.write(std::as_bytes(std::span(text)));
  file.commit();
  fmt::print(stderr, "hadal: {} choices for {} in {}\n", tuning.choices().size(), tuning.card, path.string());
#else
  fail(ErrorKind::unsupported, "this build has no CUDA backend; hadal tune is for cards");
#endif
}

}  // namespace

void add_tune(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("tune", "Time the tiles of the matrix kernels on this GPU, and keep the fastest in a file");
  command
      ->add_option("--config", a->config,
                   "Configuration whose shapes are measured: a file, or the name of one that comes with Hadal")
      ->capture_default_str();
  command->add_option("--numerics", a->numerics, "Modes to measure: bf16, fp8")
      ->delimiter(',')
      ->check(CLI::IsMember({"bf16", "fp8"}))
      ->capture_default_str();
  command
      ->add_option("--rows", a->rows,
                   "Rows of a step to measure at; others take the next larger (with 128 or fewer there is no choice)")
      ->delimiter(',')
      ->check(CLI::Range(129, 1 << 16))
      ->capture_default_str();
  command->add_option(
      "--out", a->out,
      "File to write (default: tuning/NAME-OF-CARD.txt; --tuning auto looks for that beside the binary, "
      "in share/hadal and in the source tree)");
  command->callback([a] { run(*a); });
}

}  // namespace hadal
