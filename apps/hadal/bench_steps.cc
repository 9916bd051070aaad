#include "bench_steps.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/progress.h"
#include "bench.h"
#include "bench_load.h"
#include "engine/open_checkpoint.h"
#include "model_options.h"
#include "models/deepseek_v41/synthetic.h"
#include "ops/cpu/context.h"
#include "ops/cpu/roof.h"
#include "ops/random_values.h"
#include "stage_picture.h"

namespace hadal {

namespace fs = std::filesystem;
using deepseek_v41::kStages;
using deepseek_v41::Stage;

namespace {

// A rank named "ep4" is one of 4.
int parse_rank(const std::string& name) {
  if (name.empty()) return 1;
  int ranks = 0;
  const char* end = name.data() + name.size();
  if (!name.starts_with("ep") || std::from_chars(name.data() + 2, end, ranks).ptr != end || ranks < 1)
    fail(ErrorKind::invalid_argument, "--emulate-rank is '{}', expected ep and a number, as in ep4: one of 4 ranks",
         name);
  return ranks;
}

// The picks of `rows` rows among `experts`, ascending in a row.
std::vector<int32_t> draw_experts(const std::string& routing, int rows, int topk, int experts, uint64_t seed) {
  uint64_t drawn = 0;
  const auto below = [&](int n) {
    return static_cast<int32_t>(random_values::bits(seed, drawn++) % static_cast<uint64_t>(n));
  };
  std::vector<int32_t> deck(static_cast<size_t>(experts));
  std::iota(deck.begin(), deck.end(), 0);
  for (int i = experts - 1; i > 0; --i)
    std::swap(deck[static_cast<size_t>(i)], deck[static_cast<size_t>(below(i + 1))]);
  // When skewed, one expert in 24 gets four times its share: the first of the deck.
  const int hot = std::max(1, experts / 24);
  std::vector<int32_t> ids(static_cast<size_t>(rows) * static_cast<size_t>(topk));
  for (int r = 0; r < rows; ++r) {
    int32_t* row = &ids[static_cast<size_t>(r) * static_cast<size_t>(topk)];
    for (int i = 0; i < topk; ++i) {
      if (routing == "exact") {
        row[i] = deck[static_cast<size_t>((int64_t{r} * topk + i) % experts)];
        continue;
      }
      do
        row[i] = deck[static_cast<size_t>(routing == "skewed" && below(experts - hot) < 3 * hot ? below(hot)
                                                                                                : below(experts))];
      while (std::find(row, row + i, row[i]) != row + i);
    }
    std::sort(row, row + topk);
  }
  return ids;
}

}  // namespace

void StepBenchOptions::add_to(CLI::App& command) {
  CLI::Option* folder = command.add_option("MODEL", model, "Folder of a checkpoint; the embedded model when left out");
  command
      .add_option("--config", config,
                  "A configuration, by file or by name (v41-flash): random weights made on the device")
      ->excludes(folder);
  command.add_option(
      "--emulate-rank", rank,
      "One of several ranks of --config, as in ep4: all dense layers, a quarter of the experts and Engram rows");
  command.add_option("--layers", layers, "With --config: the first layers only; 0 = all")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--engram-rows", engram_rows, "With --config: rows of an Engram table, about; 0 = the rank's share")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option(
          "--routing", routing,
          "Experts of a row: model (the router's), uniform, exact (all get the same number), skewed (the hottest get "
          "four times their share); model without --emulate-rank, uniform with it")
      ->check(CLI::IsMember({"model", "uniform", "exact", "skewed"}));
  command.add_option("--device", device, "cpu, cuda or cuda:portable; cuda when --config is given, else cpu")
      ->check(CLI::IsMember({"cpu", "cuda", "cuda:portable"}));
  command.add_option("--numerics", numerics, "bf16, fp32, official or fp8")->capture_default_str();
  command.add_option("--threads", threads, "CPU threads; 0 = all that the process may use")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  add_isa_option(command, isa);
  command.add_flag("--reload", reload,
                   "Read the checkpoint from the disk again, into huge pages, which a CPU reads faster");
  add_gpu_options(command, cuda_graphs, engram_device);
  add_tuning_option(command);
  command.add_option("--seed", seed, "Seed of weights, cached rows, tokens and routing")->capture_default_str();
  command.add_option("--steps", steps, "Timed steps")->check(CLI::Range(1, 100000))->capture_default_str();
  command.add_option("--warm-up", warm_up, "Steps before")->check(CLI::Range(0, 100000))->capture_default_str();
  command.add_flag("--json", json, "Print one line of JSON a measurement");
}

double StepTimes::median() const { return median_of(steps); }

// Times operators, and routes rows to drawn experts.
class StepBench::Watch final : public OperatorWatch {
 public:
  void before(OperatorId) override {
    if (marks_) marks_->mark();
  }
  void after(OperatorId op, Context& context, const void* args) override {
    if (marks_) {
      marks_->mark();
      calls_.push_back(op);
    }
    if (visitor) visitor(op, args);
    if (op != OperatorId::router || picks_.empty()) return;
    const auto& router = *static_cast<const RouterArgs*>(args);
    HADAL_CHECK(router.rows <= rows_);
    context.copy_on_device(router.ids.data, picks_[layer_++ % picks_.size()],
                           static_cast<size_t>(router.rows * router.topk) * sizeof(int32_t));
  }
  std::function<void(OperatorId, const void*)> visitor;

  // Draws for every layer; called again for more rows.
  void route(Context& context, const std::string& routing, int layers, int rows, int topk, int experts, uint64_t seed) {
    if (rows <= rows_) return;
    picks_.clear();
    for (int l = 0; l < layers; ++l) {
      const std::vector<int32_t> ids = draw_experts(routing, rows, topk, experts, seed + static_cast<uint64_t>(l));
      void* device = context.allocate_cache(ids.size() * sizeof(int32_t));
      context.copy_to_device(device, ids.data(), ids.size() * sizeof(int32_t));
      picks_.push_back(device);
    }
    rows_ = rows;
  }

  void begin_step(std::unique_ptr<TimeMarks> marks) {
    layer_ = 0;
    calls_.clear();
    marks_ = std::move(marks);
  }
  // Seconds of every stage, then those between operators.
  std::array<double, kStages + 1> end_step() {
    std::array<double, kStages + 1> stages{};
    const std::vector<double> spans = marks_->seconds();
    marks_.reset();
    for (size_t i = 0; i < spans.size(); ++i)
      stages[i % 2 == 1 ? kStages : static_cast<size_t>(deepseek_v41::stage_of(calls_[i / 2]))] += spans[i];
    return stages;
  }

 private:
  std::unique_ptr<TimeMarks> marks_;
  std::vector<OperatorId> calls_;
  std::vector<const void*> picks_;  // [layers] i32 [rows_, topk]
  int rows_ = 0;
  size_t layer_ = 0;
};

StepBench::StepBench(const StepBenchOptions& options) : options_(options), watch_(std::make_unique<Watch>()) {
  StepBenchOptions& o = options_;
  if (o.device.empty()) o.device = o.config.empty() ? "cpu" : "cuda";
  if (o.config.empty() && (!o.rank.empty() || o.layers > 0 || o.engram_rows > 0))
    fail(ErrorKind::invalid_argument,
         "--emulate-rank, --layers and --engram-rows shape a --config; a checkpoint runs as it is");
  if (!o.config.empty() && o.reload)
    fail(ErrorKind::invalid_argument, "--reload reads a checkpoint again, and --config makes its weights");
  if (o.routing.empty()) o.routing = o.rank.empty() ? "model" : "uniform";
  ranks_ = parse_rank(o.rank);
  if (ranks_ > 1 && o.routing == "model")
    fail(ErrorKind::invalid_argument,
         "--routing model picks experts that rank {} does not have; use uniform, exact or skewed", o.rank);
  backend_ = parse_backend(o.device);
  use_isa(backend_, o.isa);
  load();
  cost_.activation_bytes = static_cast<double>(size_of(context_->activation_type()));
  cost_.products8 = on_gpu(backend_) && context_->numerics() == Numerics::fp8;
  measure_roof();
}

StepBench::~StepBench() = default;

void StepBench::load() {
  const StepBenchOptions& o = options_;
  if (o.config.empty()) {
    const fs::path directory = find_model(o.model);
    name_ = directory.string();
    checkpoint_ = std::make_unique<Checkpoint>(open_checkpoint(directory, o.reload, on_gpu(backend_)));
    context_ =
        make_context(backend_, parse_numerics(o.numerics), o.threads, gpu_options(o.cuda_graphs, o.engram_device));
    model_ = std::make_unique<deepseek_v41::Model>(*checkpoint_, *context_,
                                                   watched_operators(operators_of(backend_), *watch_));
    if (backend_ == Backend::cpu) {
      // To the end: neither the roof nor a step is measured beside it.
      checkpoint_->map_ahead(/*count=*/true);
      std::optional<Progress> progress;
      uint64_t shown = 0;
      checkpoint_->wait_until_mapped([&](uint64_t done, uint64_t total) {
        if (!progress) progress.emplace("Mapping the checkpoint", total);
        progress->advance(done - shown);
        shown = done;
      });
      if (progress) progress->finish();
      huge_pages_ = checkpoint_->huge_pages();
    }
    cost_.local_experts = config().n_routed_experts;
    return;
  }
  const fs::path file = find_config(o.config);
  name_ = file.stem().string();
  const deepseek_v41::Rank rank = deepseek_v41::make_rank(V41Config::load(file), {ranks_, o.layers, o.engram_rows});
  context_ = make_context(backend_, parse_numerics(o.numerics), o.threads, gpu_options(o.cuda_graphs, o.engram_device));
  Progress progress("making weights", 100, "%");
  uint64_t shown = 0;
  deepseek_v41::ModelWeights weights =
      random_model_weights(rank, o.seed, *context_, operators_of(backend_), [&](double share) {
        const auto percent = static_cast<uint64_t>(100 * share);
        progress.advance(percent - shown);
        shown = percent;
      });
  progress.finish();
  // Any map serves: rows of random tables are alike.
  std::vector<int32_t> map(static_cast<size_t>(rank.config.vocab_size));
  for (size_t i = 0; i < map.size(); ++i)
    map[i] = static_cast<int32_t>(i % static_cast<size_t>(rank.config.engram_compressed_vocab_size));
  model_ = std::make_unique<deepseek_v41::Model>(rank.config, std::move(weights), map, *context_,
                                                 watched_operators(operators_of(backend_), *watch_));
  cost_.local_experts = rank.local_experts;
}

void StepBench::measure_roof() {
  if (on_gpu(backend_)) {
    roof_ = h200_roof();
    return;
  }
  roof_ = cpu_roof(5);
}

deepseek_v41::Roof StepBench::cpu_roof(int repeats) {
  CpuContext& cpu = cpu_context(*context_);
  const bool pairs = options_.numerics != "fp32" && has_multiply(cpu.isa(), cpu::Multiply::bf16);
  static const TouchedMemory memory(size_t{256} << 20);
  deepseek_v41::Roof roof;
  for (int i = 0; i < repeats; ++i) {
    roof.flops_per_second =
        std::max(roof.flops_per_second,
                 cpu::multiply_rate(cpu.pool(), cpu.isa(), pairs ? cpu::Multiply::bf16 : cpu::Multiply::fp32));
    roof.bytes_per_second = std::max(roof.bytes_per_second, cpu::read_rate(cpu.pool(), memory.bytes(), cpu.isa()));
  }
  return roof;
}

std::unique_ptr<CachePools> StepBench::make_pools(int slots, int pages) {
  const CacheLayout layout = model_->cache_layout();
  if (!on_gpu(backend_))
    expect_memory(fmt::format("the state of {} requests with {} pages of {} tokens, and their logits", slots, pages,
                              layout.page_tokens),
                  pages * layout.bytes_per_page() +
                      slots * (layout.bytes_per_slot() + config().vocab_size * static_cast<int64_t>(sizeof(float))),
                  "take a smaller --batch or a shorter --context");
  auto pools = std::make_unique<CachePools>(*context_, layout, slots, pages);
  const Operators& op = operators_of(backend_);
  uint64_t seed = options_.seed + 1000;
  const auto fill = [&](RowFormat format, int dim, uint8_t* rows, int64_t count) {
    op.random_rows(*context_, format, dim, rows, count, ++seed);
  };
  for (int i = 0; i < static_cast<int>(layout.owners.size()); ++i) {
    const PagedRows entries = pools->entries(i), keys = pools->keys(i);
    fill(RowFormat::fp4_e4m3_16, layout.head_dim, entries.rows, int64_t{pages} * entries.page_rows);
    fill(RowFormat::fp4_ue8m0_32, layout.index_dim, keys.rows, int64_t{pages} * keys.page_rows);
  }
  for (int l = 0; l < layout.layers; ++l)
    fill(RowFormat::fp8_ue8m0_32, layout.head_dim, pools->ring(l).base, int64_t{slots} * layout.window);
  for (int s = 0; s < layout.draft_stages; ++s)
    fill(RowFormat::fp8_ue8m0_32, layout.head_dim, pools->draft_ring(s).base, int64_t{slots} * layout.window);
  return pools;
}

void StepBench::expect_rows(int rows) {
  if (options_.routing != "model")
    watch_->route(*context_, options_.routing, config().layers(), rows, config().num_experts_per_tok,
                  cost_.local_experts, options_.seed + 2000);
}

std::vector<int32_t> StepBench::random_tokens(int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& t : tokens) {
    const uint64_t bits = random_values::bits(~options_.seed, tokens_made_++);
    t = static_cast<int32_t>(bits % static_cast<uint64_t>(config().vocab_size));
    if (t == config().image_token_id) t = 0;
  }
  return tokens;
}

double StepBench::run_step(std::span<const SegmentRequest> requests, const std::function<void()>& propose,
                           StepTimes* times) {
  context_->reset_step();
  context_->wait();
  const double begin = seconds_now();
  propose();
  StepPlan plan(*context_, model_->step_shape(), requests);
  const deepseek_v41::Step step = model_->forward(plan);
  std::vector<int32_t> accepted;
  for (const SegmentRequest& r : requests) accepted.push_back(static_cast<int32_t>(r.state->proposed()));
  if (times != nullptr) {
    times->tokens = plan.rows();
    const auto costs = step_cost(config(), plan, cost_, roof_);
    for (size_t i = 0; i < kStages; ++i) times->stages[i].cost = costs[i];
  }
  model_->commit(plan, step, accepted);
  context_->wait();
  return seconds_now() - begin;
}

StepTimes StepBench::measure(std::span<const SegmentRequest> requests, const std::function<void()>& propose,
                             const std::function<void()>& settle) {
  const StepBenchOptions& o = options_;
  StepTimes times;
  const auto step = [&](bool profiled) {
    watch_->begin_step(profiled ? context_->time_marks() : nullptr);
    const double seconds = run_step(requests, propose, profiled ? &times : nullptr);
    settle();
    return seconds;
  };
  for (int i = 0; i < o.warm_up; ++i) step(false);
  for (int i = 0; i < o.steps; ++i) {
    if (!on_gpu(backend_)) roof_ = cpu_roof(1);
    watch_->begin_step(nullptr);
    const double cpu_begin = process_seconds();
    times.steps.push_back(run_step(requests, propose, &times));
    const double cpu = process_seconds() - cpu_begin;
    settle();
    if (on_gpu(backend_)) continue;
    times.cpu.push_back(cpu / cpu_context(*context_).pool().size());
    times.shares.push_back(floor_of(times) / times.steps.back());
  }
  if (!on_gpu(backend_)) measure_roof();

  // Marks around every operator cost a little, so that these steps do not count above.
  std::array<std::vector<double>, kStages + 1> profiled;
  model_->set_recording(false);
  for (int i = 0; i < kProfiled; ++i) {
    step(true);
    const auto stages = watch_->end_step();
    for (size_t s = 0; s < stages.size(); ++s) profiled[s].push_back(stages[s]);
  }
  model_->set_recording(true);
  for (size_t s = 0; s < kStages; ++s) times.stages[s].seconds = median_of(profiled[s]);
  times.gaps = median_of(profiled[kStages]);
  return times;
}

void StepBench::expect_context(int64_t context, int64_t growth) const {
  const int64_t most = config().max_position_embeddings;
  if (context + growth <= most) return;
  if (growth == 0)
    fail(ErrorKind::invalid_argument, "the context is {} tokens, the model takes {}; take a shorter --context", context,
         most);
  fail(ErrorKind::invalid_argument,
       "a context of {} tokens grows to {}, the model takes {}; take a shorter --context or fewer --steps", context,
       context + growth, most);
}

void StepBench::visit_step(std::span<const SegmentRequest> requests, const std::function<void()>& propose,
                           const Visit& visit) {
  context_->reset_step();
  watch_->begin_step(nullptr);
  propose();
  StepPlan plan(*context_, model_->step_shape(), requests);
  std::array<std::deque<deepseek_v41::Cost>, 256> costs;  // of the calls of each operator that are still to come
  for (const auto& [op, cost] : call_costs(config(), plan, cost_)) costs[static_cast<size_t>(op)].push_back(cost);
  watch_->visitor = [&](OperatorId op, const void* args) {
    auto& left = costs[static_cast<size_t>(op)];
    if (left.empty()) return visit(op, args, nullptr);
    visit(op, args, &left.front());
    left.pop_front();
  };
  model_->set_recording(false);
  const deepseek_v41::Step step = model_->forward(plan);
  model_->write_rings(plan, step, {});
  context_->wait();
  model_->set_recording(true);
  watch_->visitor = nullptr;
  for (const SegmentRequest& r : requests) r.state->rollback();
}

double StepBench::floor_of(const StepTimes& times) const {
  double sum = 0;
  for (const StepTimes::StageTime& stage : times.stages) sum += stage.cost.seconds;
  return sum;
}

std::string StepBench::describe() const {
  std::string text =
      fmt::format("{}, {} layers, {} of {} experts here, {}, numerics {}", name_, config().layers(),
                  cost_.local_experts, config().n_routed_experts, context_->device_name(), options_.numerics);
  if (!config().engram_num_embeddings.empty())
    text +=
        fmt::format(", {:.1f} M Engram rows a table", 1e-6 * static_cast<double>(config().engram_num_embeddings[0]));
  if (ranks_ > 1) text += fmt::format("; one rank of {}, communication absent", ranks_);
  if (huge_pages_ && huge_pages_->matter()) text += "; " + to_string(*huge_pages_);
  return text;
}

json::object StepBench::result(const StepTimes& t) const {
  json::object stages;
  for (size_t s = 0; s < kStages; ++s) {
    const StepTimes::StageTime& stage = t.stages[s];
    stages[to_string(static_cast<Stage>(s))] =
        json::object{{"ms", 1e3 * stage.seconds},
                     {"floor_ms", 1e3 * stage.cost.seconds},
                     {"share", stage.seconds > 0 ? stage.cost.seconds / stage.seconds : 0},
                     {"flops", stage.cost.sum.flops + stage.cost.sum.flops8},
                     {"bytes", stage.cost.sum.bytes}};
  }
  stages["gaps"] = json::object{{"ms", 1e3 * t.gaps}};
  const auto [least, most] = std::minmax_element(t.steps.begin(), t.steps.end());
  return {{"card", context_->device_name()},
          {"config", name_},
          {"rank", options_.rank},
          {"layers", config().layers()},
          {"local_experts", cost_.local_experts},
          {"routing", options_.routing},
          {"communication", "absent"},
          {"numerics", options_.numerics},
          {"engram_host_bytes", model_->host_table_bytes()},
          {"cuda_graphs", on_gpu(backend_) && options_.cuda_graphs == "on"},
          {"seed", options_.seed},
          {"tokens_per_step", t.tokens},
          {"tokens_per_s_per_gpu", static_cast<double>(t.tokens) / t.median()},
          {"step_ms",
           json::object{
               {"median", 1e3 * t.median()}, {"min", 1e3 * *least}, {"max", 1e3 * *most}, {"steps", t.steps.size()}}},
          {"roof",
           json::object{{"flops_per_second", roof_.flops_per_second}, {"bytes_per_second", roof_.bytes_per_second}}},
          {"cpu_ms_per_thread", t.cpu.empty() ? json::value(nullptr) : json::value(1e3 * median_of(t.cpu))},
          {"huge_page_bytes", huge_pages_ ? json::value(huge_pages_->huge) : json::value(nullptr)},
          {"huge_page_bytes_possible", huge_pages_ ? json::value(huge_pages_->possible) : json::value(nullptr)},
          {"share_of_paired_roof", t.shares.empty() ? json::value(nullptr) : json::value(median_of(t.shares))},
          {"stages", stages}};
}

void StepBench::print(const StepTimes& t) const {
  const auto [least, most] = std::minmax_element(t.steps.begin(), t.steps.end());
  fmt::print("  {:.2f} ms a step (median of {}, {:.2f} to {:.2f}), {:.1f} tokens/s\n", 1e3 * t.median(), t.steps.size(),
             1e3 * *least, 1e3 * *most, static_cast<double>(t.tokens) / t.median());
  if (!t.shares.empty()) {
    const auto [low, high] = std::minmax_element(t.shares.begin(), t.shares.end());
    fmt::print("  {:.0f}% of the roof measured before each step (median; {:.0f}% to {:.0f}%)\n",
               100 * median_of(t.shares), 100 * *low, 100 * *high);
    fmt::print("  {:.2f} ms of CPU time a thread (median), of which the roof takes {:.0f}%\n", 1e3 * median_of(t.cpu),
               100 * floor_of(t) / median_of(t.cpu));
  }
  fmt::print("\n");
  fmt::print("  {:<20} {:>10} {:>10} {:>7} {:>10} {:>10}\n", "stage", "ms", "floor ms", "share", "MB", "GFLOP");
  double sum = 0, floor = 0;
  for (size_t s = 0; s < kStages; ++s) {
    const StepTimes::StageTime& stage = t.stages[s];
    sum += stage.seconds;
    floor += stage.cost.seconds;
    fmt::print("  {:<20} {:>10.3f} {:>10.3f} {:>6.0f}% {:>10.2f} {:>10.3f}\n", to_string(static_cast<Stage>(s)),
               1e3 * stage.seconds, 1e3 * stage.cost.seconds,
               stage.seconds > 0 ? 100 * stage.cost.seconds / stage.seconds : 0, 1e-6 * stage.cost.sum.bytes,
               1e-9 * (stage.cost.sum.flops + stage.cost.sum.flops8));
  }
  fmt::print("  {:<20} {:>10.3f}\n  {:<20} {:>10.3f} {:>10.3f} {:>6.0f}%\n\n", "between operators", 1e3 * t.gaps, "sum",
             1e3 * (sum + t.gaps), 1e3 * floor, 100 * floor / (sum + t.gaps));
  std::fflush(stdout);
}

std::string StepBench::picture(const std::string& title, const StepTimes& t) const {
  std::vector<StageBar> bars;
  for (size_t s = 0; s < kStages; ++s) {
    const StepTimes::StageTime& stage = t.stages[s];
    if (stage.seconds > 0)
      bars.push_back({std::string(to_string(static_cast<Stage>(s))), 1e3 * stage.seconds, 1e3 * stage.cost.seconds,
                      1e-6 * stage.cost.sum.bytes, 1e-9 * (stage.cost.sum.flops + stage.cost.sum.flops8)});
  }
  bars.push_back({"between operators", 1e3 * t.gaps, 0, 0, 0});
  return stage_picture_svg(title, describe(), bars);
}

}  // namespace hadal
