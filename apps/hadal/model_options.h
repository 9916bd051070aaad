// Flags that every command with a model shares, and the model that they name.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/single_request.h"
#include "hadal/engine.h"
#include "text/tokenizer.h"

namespace hadal {

struct ModelOptions {
  std::string path;
  std::string backend = "cpu";
  std::string numerics = "bf16";
  int threads = 0;
  std::string isa;
  bool reload = false;
  std::string cuda_graphs = "on", engram_device = "auto";

  // `required`: the command has no use for the embedded model.
  void add_to(CLI::App& command, bool required);
  void give(EngineOptions& engine) const;
};

// A prefix cache that outlives the process.
struct PrefixCacheDiskOptions {
  std::string directory;
  uint64_t bytes = uint64_t{16} << 30;

  void add_to(CLI::App& command);
  void give(EngineOptions& engine) const;
  int64_t limit() const { return static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX)); }
};

// --isa, for use_isa() of engine/backend.h.
void add_isa_option(CLI::App& command, std::string& name);
// --cuda-graphs and --engram-device.
void add_gpu_options(CLI::App& command, std::string& cuda_graphs, std::string& engram_device);
GpuOptions gpu_options(const std::string& cuda_graphs, const std::string& engram_device);
// Where the tiles of the matrix kernels come from (ops/tuning.h).
void add_tuning_option(CLI::App& command);

struct PrefillOptions {
  std::string mode = "exact";
  int chunk = 512;
  int bounded_rows = 0;

  void add_to(CLI::App& command);
  SingleRequest::PromptOptions prompt() const;
};

// A checkpoint opened and placed on its backend.
struct LoadedModel {
  explicit LoadedModel(const ModelOptions& options);

  std::filesystem::path directory;
  Backend backend;
  Checkpoint checkpoint;
  std::unique_ptr<Context> context;
  std::unique_ptr<deepseek_v41::Model> model;

  // tokenizer.json beside the weights; throws invalid_data when there is none.
  text::Tokenizer tokenizer() const;
  // The resolved configuration as one line, for standard error.
  std::string describe() const;
  // Adds how much of the weights lies in huge pages: once, as soon as a CPU's are mapped in the background.
  void say_huge_pages();

 private:
  bool said_huge_pages_ = false;
};

// The folder of a model: the path as given, else the embedded model beside the binary or under share/hadal.
std::filesystem::path find_model(const std::string& path);

// A configuration: a file, or the name of one in configs/ beside the binary, in its installation or in the source tree.
std::filesystem::path find_config(const std::string& name);

// Token ids from a comma- or space-separated list, or from a file of such (or a one-dimensional int32 .npy).
std::vector<int32_t> parse_ids(const std::string& text, const std::string& what);
std::vector<int32_t> read_ids(const std::string& path);
// The whole of a file, or of standard input for "-".
std::string read_text(const std::string& path);

}  // namespace hadal
