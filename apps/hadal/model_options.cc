#include "model_options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <system_error>

#include "base/error.h"
#include "base/npy.h"
#include "engine/open_checkpoint.h"
#include "ops/tuning.h"

namespace hadal {

namespace fs = std::filesystem;

void ModelOptions::add_to(CLI::App& command, bool required) {
  CLI::Option* model = command.add_option("MODEL", path,
                                          required ? "Folder of the checkpoint (config.json, *.safetensors)"
                                                   : "Folder of the checkpoint; the embedded model when left out");
  if (required) model->required();
  command
      .add_option("--backend,--device", backend,
                  "Where to run: cpu, cuda, reference (slow, the specification), or cuda:portable (the kernels for "
                  "GPUs that are not Hopper)")
      ->capture_default_str();
  command
      .add_option("--numerics", numerics,
                  "bf16, fp32 (no bf16 rounding: to compare with oracles), official (FP8 inputs as published), or "
                  "fp8 (FP8 inputs, a scale for 128 channels or a row: the fastest on a GPU)")
      ->capture_default_str();
  command.add_option("--threads", threads, "CPU threads; 0 = all that the process may use")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  add_isa_option(command, isa);
  command.add_flag("--reload", reload,
                   "Read the checkpoint from the disk again, into huge pages: after a download, for a faster CPU");
  add_gpu_options(command, cuda_graphs, engram_device);
  add_tuning_option(command);
}

void ModelOptions::give(EngineOptions& engine) const {
  engine.model = find_model(path);
  engine.backend = backend;
  engine.numerics = numerics;
  engine.threads = threads;
  engine.isa = isa;
  engine.reload = reload;
  engine.cuda_graphs = cuda_graphs == "on";
  engine.engram_place = engram_device;
}

void PrefixCacheDiskOptions::add_to(CLI::App& command) {
  CLI::Option* dir = command.add_option("--prefix-cache-dir", directory,
                                        "Folder where prefixes of prompts outlive the process (docs/prefix-cache.md)");
  command
      .add_option("--prefix-cache-disk-size", bytes,
                  "Bytes that the folder may hold, as in 500M or 64G; the longest unused entries go first")
      ->transform(CLI::AsSizeValue(false))
      // Runs before the one above, which would take -5 for 2^64 - 5.
      ->transform(CLI::Validator(
          [](std::string& text) {
            return text.starts_with('-') ? fmt::format("{} is below 0, expected bytes, as in 500M or 64G", text)
                                         : std::string();
          },
          ""))
      ->needs(dir)
      ->default_str("16G");
}

void PrefixCacheDiskOptions::give(EngineOptions& engine) const {
  engine.prefix_cache_dir = directory;
  engine.prefix_cache_disk_bytes = limit();
}

void add_isa_option(CLI::App& command, std::string& name) {
  command.add_option(
      "--isa", name,
      "With --device cpu, the instruction set: scalar, avx2, avx512, avx512-vnni, avx512-bf16 or amx (default: the "
      "best of this CPU); it may change the tokens");
}

void add_gpu_options(CLI::App& command, std::string& cuda_graphs, std::string& engram_device) {
  command
      .add_option("--cuda-graphs", cuda_graphs,
                  "With --device cuda, replay decode steps as CUDA graphs: on, off; the tokens are the same")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command
      .add_option("--engram-device", engram_device,
                  "With --device cuda, where Engram tables lie: gpu, host (pinned memory whose rows the GPU reads; the "
                  "same tokens), auto (gpu when all weights fit)")
      ->check(CLI::IsMember({"auto", "gpu", "host"}))
      ->capture_default_str();
}

GpuOptions gpu_options(const std::string& cuda_graphs, const std::string& engram_device) {
  return {cuda_graphs == "on", parse_table_place(engram_device)};
}

void add_tuning_option(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--tuning", [](const std::string& where) { use_tuning(where); },
          "With --device cuda, tiles of the matrix kernels: a file of hadal tune, auto (the file for this card that "
          "lies "
          "beside the binary), or off; the tokens are the same")
      ->default_str("auto");
}

void PrefillOptions::add_to(CLI::App& command) {
  command
      .add_option("--prefill", mode,
                  "Rows that decoder layers run for a prompt: full, exact (the same logits), bounded (approximate)")
      ->capture_default_str();
  command.add_option("--chunk", chunk, "Prompt tokens in one step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--bounded-rows", bounded_rows, "With --prefill bounded: rows, at least the window; 0 = the window")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
}

SingleRequest::PromptOptions PrefillOptions::prompt() const {
  SingleRequest::PromptOptions options;
  options.mode = parse_prefill_mode(mode);
  if (bounded_rows > 0 && options.mode != PrefillMode::bounded)
    fail(ErrorKind::invalid_argument, "--bounded-rows {} needs --prefill bounded, got --prefill {}", bounded_rows,
         mode);
  options.chunk = chunk;
  options.bounded_rows = bounded_rows;
  return options;
}

fs::path find_model(const std::string& path) {
  if (!path.empty()) return path;
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path candidates[] = {binary / "models/hadal-tiny", binary / "../share/hadal/models/hadal-tiny",
                                 binary / "../../models/hadal-tiny"};
  for (const fs::path& candidate : candidates)
    if (fs::exists(candidate / "config.json", ignored)) return fs::weakly_canonical(candidate, ignored);
  fail(ErrorKind::invalid_argument,
       "no MODEL was given and the embedded model is not beside the binary ({}) or under share/hadal/models; give a "
       "folder",
       binary.string());
}

fs::path find_config(const std::string& name) {
  std::error_code ignored;
  if (fs::is_regular_file(name, ignored)) return name;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path file = "configs/" + name + ".json";
  for (const fs::path& base : {fs::path("."), binary, binary / "../share/hadal", binary / "../.."})
    if (fs::exists(base / file, ignored)) return base / file;
  fail(ErrorKind::invalid_argument, "there is no configuration '{}': no such file, and no {} here or beside the binary",
       name, file.string());
}

namespace {

Backend backend_of(const ModelOptions& options) {
  const Backend backend = parse_backend(options.backend);
  use_isa(backend, options.isa);
  return backend;
}

}  // namespace

LoadedModel::LoadedModel(const ModelOptions& options)
    : directory(find_model(options.path)),
      backend(backend_of(options)),
      checkpoint(open_checkpoint(directory, options.reload, on_gpu(backend))),
      context(make_context(backend, parse_numerics(options.numerics), options.threads,
                           gpu_options(options.cuda_graphs, options.engram_device))),
      model(std::make_unique<deepseek_v41::Model>(checkpoint, *context, operators_of(backend))) {
  if (backend == Backend::cpu) checkpoint.map_ahead(/*count=*/true);
}

text::Tokenizer LoadedModel::tokenizer() const {
  if (!fs::exists(directory / "tokenizer.json"))
    fail(ErrorKind::invalid_data, "{} has no tokenizer.json; give token ids with --ids", directory.string());
  return text::Tokenizer::load(directory);
}

std::string LoadedModel::describe() const {
  return fmt::format("model {}, {} layers, backend {}, numerics {}", directory.string(), model->config().layers(),
                     hadal::describe(backend, *context), to_string(context->numerics()));
}

void LoadedModel::say_huge_pages() {
  if (backend != Backend::cpu || said_huge_pages_) return;
  const std::optional<HugePages> pages = checkpoint.huge_pages();
  if (!pages) return;
  said_huge_pages_ = true;
  if (pages->matter()) fmt::print(stderr, "hadal: {}\n", to_string(*pages));
}

std::string read_text(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) fail(ErrorKind::io, "cannot open {}: {}", path, std::generic_category().message(errno));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) fail(ErrorKind::io, "cannot read {}", path);
  return text;
}

std::vector<int32_t> parse_ids(const std::string& text, const std::string& what) {
  std::vector<int32_t> ids;
  const std::string separators = ", []\r\n\t";
  for (size_t i = 0; (i = text.find_first_not_of(separators, i)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(separators, i), text.size());
    const std::string word = text.substr(i, end - i);
    const bool digits = std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!digits || word.size() > 9)
      fail(ErrorKind::invalid_argument,
           "{}: '{}' is not a token id, expected whole numbers separated by commas or spaces", what,
           word.substr(0, 40));
    ids.push_back(std::stoi(word));
    i = end;
  }
  return ids;
}

std::vector<int32_t> read_ids(const std::string& path) {
  if (path.ends_with(".npy")) return read_npy_i32(path).data;
  return parse_ids(read_text(path), path);
}

}  // namespace hadal
