// hadal inspect: what a checkpoint, or a configuration without weights, holds and needs.
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/host_memory.h"
#include "checkpoint/json.h"
#include "checkpoint/summary.h"
#include "checkpoint/verify.h"
#include "commands.h"
#include "models/deepseek_v41/placement.h"
#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/device.h"
#endif

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace hadal {
namespace {

struct Arguments {
  std::string model;
  bool verify = false, tensors = false, json = false;
  int threads = 0;
};

// What is shown for one part of the model; `resident_bytes` of it fit into memory.
struct PlanRow {
  std::string name;
  PartSummary size;
  int64_t resident_bytes = 0;
};

// A GPU of this machine, and where on it `--engram-device auto` puts the Engram tables; null when the weights do not fit.
struct GpuPlan {
  std::string name;
  int64_t free = 0;
  std::optional<TablePlace> tables;
};

struct Report {
  std::string path;
  V41Config config;
  std::vector<ExpectedTensor> inventory;
  V41Summary summary;
  PartSummary vision;
  std::optional<Checkpoint> checkpoint;
  std::optional<VerifyReport> verified;
  HostMemory host;
  int64_t reserve = 0;  // left for caches, activations and the rest of the machine
  std::vector<PlanRow> plan;
  int64_t gpu_weights = 0, gpu_tables = 0;  // what goes to a GPU, and what may go to pinned host memory instead
  std::vector<GpuPlan> gpus;
};

std::string grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string size_text(double bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, units[unit]);
}

// All weights are mapped; the plan says which of them stay in memory, the ones that every token reads first.
void plan_memory(Report& r) {
  r.host = read_host_memory();
  r.reserve = std::max<int64_t>(int64_t{1} << 30, r.host.usable() / 10);
  const auto row = [&](std::string name, std::initializer_list<V41Part> parts) {
    PlanRow& added = r.plan.emplace_back();
    added.name = std::move(name);
    for (const V41Part part : parts) added.size += r.summary.part(part);
  };
  row("dense", {V41Part::embedding, V41Part::head, V41Part::attention, V41Part::indexer, V41Part::router,
                V41Part::shared_expert, V41Part::engram});
  row("draft", {V41Part::draft, V41Part::draft_expert});
  row("experts", {V41Part::routed_expert});
  row("Engram tables", {V41Part::engram_table});
  int64_t left = std::max<int64_t>(0, r.host.usable() - r.reserve);
  for (PlanRow& p : r.plan) {
    p.resident_bytes = std::min(left, p.size.bytes);
    left -= p.resident_bytes;
  }
}

void plan_gpus(Report& r) {
  r.gpu_tables = r.summary.part(V41Part::engram_table).bytes;
  r.gpu_weights = r.summary.total.bytes - r.gpu_tables;
#ifdef HADAL_HAVE_CUDA
  for (int i = 0; i < cuda::device_count(); ++i) {
    const cuda::DeviceInfo device = cuda::device_info(i);
    const auto free = static_cast<int64_t>(device.memory_free);
    r.gpus.push_back(
        {device.name, free, deepseek_v41::place_tables(r.gpu_weights, r.gpu_tables, free, TablePlace::automatic)});
  }
#endif
}

Report make_report(const Arguments& a) {
  Report r;
  r.path = a.model;
  std::error_code ignored;
  const std::filesystem::path path(a.model);
  if (path.extension() == ".json" && !std::filesystem::is_directory(path, ignored)) {
    if (a.verify)
      fail(ErrorKind::invalid_argument, "--verify needs a folder with a checkpoint, and {} is a file", a.model);
    r.config = V41Config::load(path);
  } else {
    r.checkpoint = Checkpoint::open(path);
    r.config = r.checkpoint->config();
    for (const SafetensorsFile& shard : r.checkpoint->shards())
      for (const TensorView& t : shard.tensors())
        if (is_vision_tensor(t.name))
          r.vision += PartSummary{1, int64_t(t.bytes / type_size(t.type)), int64_t(t.bytes)};
  }
  r.inventory = v41_inventory(r.config);
  r.summary = summarize(r.config, r.inventory);
  plan_memory(r);
  plan_gpus(r);
  if (a.verify) r.verified = verify_checkpoint(*r.checkpoint, a.threads > 0 ? a.threads : r.host.cpus);
  return r;
}

// ---- text ------------------------------------------------------------------------------------------------------

std::string list(const std::vector<int>& values) {
  return values.empty() ? "none" : fmt::format("{}", fmt::join(values, " "));
}

void print_config(const Report& r) {
  const V41Config& c = r.config;
  fmt::print("{}\n", r.path);
  if (r.checkpoint)
    fmt::print("  DeepSeek-V4.1 checkpoint of {} shards; every name, dtype, shape and block size is as expected\n",
               r.checkpoint->shards().size());
  else
    fmt::print("  DeepSeek-V4.1 configuration, without weights\n");
  fmt::print("\nConfiguration\n");
  fmt::print("  layers            {} ({} encoder, {} decoder), {} draft stages\n", c.layers(), c.first_decoder_layer(),
             c.layers() - c.first_decoder_layer(), c.draft_stages());
  fmt::print("  width             {}, vocabulary {}, hyper-connections {}\n", c.hidden_size, c.vocab_size, c.hc_mult);
  fmt::print("  attention         {} heads of {} ({} rotated), window {}, query rank {}, output {} groups of rank {}\n",
             c.num_attention_heads, c.head_dim, c.qk_rope_head_dim, c.sliding_window, c.q_lora_rank, c.o_groups,
             c.o_lora_rank);
  fmt::print("  compressed KV     owned by layers {}; selected in layers {}\n", list(c.kv_source_layer_ids),
             list(c.index_source_layer_ids));
  fmt::print("  indexer           {} heads of {}, top {}; candidates from layer {}, {} blocks of {}\n", c.index_n_heads,
             c.index_head_dim, c.index_topk, c.candidate_source_layer_id, c.candidate_topk_blocks,
             c.candidate_block_size);
  fmt::print("  experts           {} of width {}, {} per token, 1 shared; drafts {}, {} per token\n",
             c.n_routed_experts, c.moe_intermediate_size, c.num_experts_per_tok,
             c.draft_stages() > 0 ? c.dspark_n_routed_experts : 0,
             c.draft_stages() > 0 ? c.dspark_num_experts_per_tok : 0);
  fmt::print("  Engram            layers {}; n-grams up to {}, {} heads of {}\n", list(c.engram_layer_ids),
             c.engram_max_ngram_size, c.engram_n_heads, c.engram_head_dim);
  fmt::print("  context           {} positions\n", grouped(c.max_position_embeddings));
  for (const std::string& name : c.unknown_fields) fmt::print("  not known         {}\n", name);
}

void print_sizes(const Report& r) {
  const V41Summary& s = r.summary;
  fmt::print("\n{:<18}{:>10}{:>20}{:>20}\n", "Parts", "tensors", "parameters", "bytes");
  const auto line = [](std::string_view name, const PartSummary& p) {
    if (p.tensors > 0)
      fmt::print("  {:<16}{:>10}{:>20}{:>20}\n", name, grouped(p.tensors), grouped(p.parameters), grouped(p.bytes));
  };
  for (int p = 0; p < v41_part_count; ++p) line(part_name(V41Part(p)), s.parts[size_t(p)]);
  line("total", s.total);
  line("vision (unread)", r.vision);

  fmt::print("\nRead per decoded token\n");
  fmt::print("  dense {}, experts {}, embedding and Engram rows {}: {} in all\n", size_text(double(s.token_dense)),
             size_text(double(s.token_experts)), size_text(double(s.token_rows)), size_text(double(s.token_bytes())));
  fmt::print("  {} parameters take part; {} bytes\n", grouped(s.active_parameters), grouped(s.token_bytes()));
  if (s.draft_row_bytes > 0) fmt::print("  a draft row reads {}\n", size_text(double(s.draft_row_bytes)));
  fmt::print("\nState\n  {:.1f} bytes per token of context, and {} of windows per request\n", s.cache_bytes_per_token,
             size_text(double(s.window_bytes)));
}

void print_plan(const Report& r) {
  fmt::print("\nMemory plan for this machine\n  {} CPUs, {} of {} available", r.host.cpus,
             size_text(double(r.host.available)), size_text(double(r.host.total)));
  if (r.host.cgroup_limit >= 0)
    fmt::print(", control group limit {} with {} in use", size_text(double(r.host.cgroup_limit)),
               size_text(double(r.host.cgroup_used)));
  fmt::print("; {} kept for state and everything else\n", size_text(double(r.reserve)));
  for (const PlanRow& p : r.plan) {
    if (p.size.bytes == 0) continue;
    fmt::print("  {:<16}{:>12}  ", p.name, size_text(double(p.size.bytes)));
    if (p.resident_bytes == p.size.bytes)
      fmt::print("fits in memory\n");
    else
      fmt::print("mapped: {:.0f}% fits in memory, {} is read from disk when needed\n",
                 100.0 * double(p.resident_bytes) / double(p.size.bytes),
                 size_text(double(p.size.bytes - p.resident_bytes)));
  }
}

void print_gpu_plan(const Report& r) {
  fmt::print("\nMemory plan for a GPU\n  {} of weights in its memory", size_text(double(r.gpu_weights)));
  if (r.gpu_tables > 0)
    fmt::print(", and {} of Engram tables there or in pinned host memory (--engram-device)",
               size_text(double(r.gpu_tables)));
  fmt::print("\n");
  for (size_t i = 0; i < r.gpus.size(); ++i) {
    const GpuPlan& gpu = r.gpus[i];
    fmt::print("  {} {}, {} free: ", i, gpu.name, size_text(double(gpu.free)));
    if (!gpu.tables)
      fmt::print("the weights do not fit\n");
    else if (*gpu.tables == TablePlace::device)
      fmt::print("everything fits\n");
    else
      fmt::print("the tables go to host memory, of which {} are available\n", size_text(double(r.host.usable())));
  }
  if (r.gpus.empty()) fmt::print("  no GPU was found\n");
}

void print_verified(const VerifyReport& v) {
  fmt::print("\nVerified\n  {} tensors, {} of scales, {} read; {}; {}\n", grouped(v.tensors),
             size_text(double(v.scale_bytes)), size_text(double(v.bytes_read)),
             v.has_total_size ? "payload size compared with the index" : "the index states no payload size",
             v.files_with_checksum > 0 ? fmt::format("{} checksums compared", v.files_with_checksum)
                                       : std::string("the index has no checksums"));
  for (const std::string& problem : v.problems) fmt::print("  {}\n", problem);
}

// ---- the list of tensors ------------------------------------------------------------------------------------------

template <typename Visit>
void each_tensor(const Report& r, Visit visit) {
  std::unordered_map<std::string_view, std::string> shard_of;
  if (r.checkpoint)
    for (const SafetensorsFile& shard : r.checkpoint->shards())
      for (const TensorView& t : shard.tensors()) shard_of.emplace(t.name, shard.path().filename().string());
  const auto shard = [&](std::string_view name) {
    const auto at = shard_of.find(name);
    return at == shard_of.end() ? std::string() : at->second;
  };
  for (const ExpectedTensor& t : r.inventory)
    visit(t.name, type_name(t.type), t.shape, int64_t(t.bytes()), part_name(t.part), shard(t.name));
  if (!r.checkpoint) return;
  for (const SafetensorsFile& file : r.checkpoint->shards())
    for (const TensorView& t : file.tensors())
      if (is_vision_tensor(t.name))
        visit(std::string(t.name), type_name(t.type), t.shape, int64_t(t.bytes), part_name(V41Part::vision),
              shard(t.name));
}

// ---- JSON ------------------------------------------------------------------------------------------------------

json::object to_json(const PartSummary& p) {
  return {{"tensors", p.tensors}, {"parameters", p.parameters}, {"bytes", p.bytes}};
}

void print_json(const Report& r, bool with_tensors) {
  const V41Summary& s = r.summary;
  json::object parts;
  for (int p = 0; p < v41_part_count; ++p) {
    const std::string_view name = part_name(V41Part(p));
    parts[json::string_view(name.data(), name.size())] =
        to_json(V41Part(p) == V41Part::vision ? r.vision : s.parts[size_t(p)]);
  }
  json::array plan;
  for (const PlanRow& p : r.plan)
    plan.push_back({{"part", p.name}, {"bytes", p.size.bytes}, {"resident_bytes", p.resident_bytes}});
  json::array gpus;
  for (const GpuPlan& gpu : r.gpus)
    gpus.push_back({{"name", gpu.name},
                    {"free_bytes", gpu.free},
                    {"tables", !gpu.tables                         ? json::value()
                               : *gpu.tables == TablePlace::device ? json::value("gpu")
                                                                   : json::value("host")}});
  json::object out = {
      {"path", r.path},
      {"model_type", "deepseek_v41"},
      {"layers", r.config.layers()},
      {"draft_stages", r.config.draft_stages()},
      {"hidden_size", r.config.hidden_size},
      {"vocab_size", r.config.vocab_size},
      {"parts", parts},
      {"total", to_json(s.total)},
      {"token",
       {{"dense_bytes", s.token_dense},
        {"expert_bytes", s.token_experts},
        {"row_bytes", s.token_rows},
        {"bytes", s.token_bytes()},
        {"active_parameters", s.active_parameters},
        {"draft_row_bytes", s.draft_row_bytes}}},
      {"state", {{"bytes_per_token", s.cache_bytes_per_token}, {"window_bytes", s.window_bytes}}},
      {"host",
       {{"cpus", r.host.cpus},
        {"memory_bytes", r.host.total},
        {"available_bytes", r.host.available},
        {"cgroup_limit_bytes", r.host.cgroup_limit >= 0 ? json::value(r.host.cgroup_limit) : json::value()},
        {"usable_bytes", r.host.usable()},
        {"reserve_bytes", r.reserve}}},
      {"memory_plan", plan},
      {"gpu_plan", {{"weight_bytes", r.gpu_weights}, {"table_bytes", r.gpu_tables}, {"gpus", gpus}}},
      {"shards", r.checkpoint ? json::value(r.checkpoint->shards().size()) : json::value()},
  };
  if (r.checkpoint) out["unknown_tensors"] = json::value_from(r.checkpoint->unknown_tensors());
  if (r.verified) {
    const VerifyReport& v = *r.verified;
    out["verify"] = {{"tensors", v.tensors},
                     {"bytes_read", v.bytes_read},
                     {"scale_bytes", v.scale_bytes},
                     {"checksums", v.files_with_checksum},
                     {"problem_count", v.problem_count},
                     {"problems", json::value_from(v.problems)}};
  }
  if (with_tensors) {
    json::array tensors;
    each_tensor(r, [&](const std::string& name, std::string_view type, const std::vector<int64_t>& shape, int64_t bytes,
                       std::string_view part, const std::string& shard) {
      json::object t = {{"name", name},
                        {"dtype", json::string_view(type.data(), type.size())},
                        {"shape", json::value_from(shape)},
                        {"bytes", bytes},
                        {"part", json::string_view(part.data(), part.size())}};
      if (!shard.empty()) t["shard"] = shard;
      tensors.push_back(std::move(t));
    });
    out["tensors"] = std::move(tensors);
  }
  std::puts(json::serialize(out).c_str());
}

void run(const Arguments& a) {
  const Report r = make_report(a);
  if (a.json) {
    print_json(r, a.tensors);
  } else {
    print_config(r);
    print_sizes(r);
    print_plan(r);
    print_gpu_plan(r);
    if (r.verified) print_verified(*r.verified);
    if (a.tensors) {
      fmt::print("\n");
      each_tensor(r, [](const std::string& name, std::string_view type, const std::vector<int64_t>& shape,
                        int64_t bytes, std::string_view part, const std::string& shard) {
        fmt::print("{:<48} {:<8} {:<18} {:>15}  {:<14} {}\n", name, type, show_shape(shape), grouped(bytes), part,
                   shard);
      });
    }
  }
  if (r.verified && r.verified->problem_count > 0)
    fail(ErrorKind::invalid_data, "{}: {} problems, the first: {}", a.model, r.verified->problem_count,
         r.verified->problems.front());
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a checkpoint holds, and check it");
  command->add_option("model", a->model, "Folder of a checkpoint, or a config.json")->required();
  command->add_flag("--verify", a->verify, "Read every byte: scales, values, sizes and checksums");
  command->add_flag("--tensors", a->tensors, "List every tensor");
  command->add_flag("--json", a->json, "Print JSON");
  command->add_option("--threads", a->threads, "Threads of --verify (default: every CPU)")->check(CLI::Range(1, 1024));
  command->callback([a] { run(*a); });
}

}  // namespace hadal
