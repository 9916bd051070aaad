#include "checkpoint/checkpoint.h"

#include "base/error.h"
#include "base/log.h"
#include "base/npy.h"
#include "base/progress.h"
#include "checkpoint/host_memory.h"
#include "checkpoint/index.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <set>
#include <thread>
#include <unordered_map>

namespace hadal {

namespace fs = std::filesystem;

struct Checkpoint::State {
  fs::path directory;
  V41Config config;
  std::vector<SafetensorsFile> shards;
  std::unordered_map<std::string_view, TensorView> tensors;
  std::vector<std::string> unknown;
  std::vector<int32_t> token_map;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  size_t copied_bytes = 0;
  // Neighbouring tensors that are read in order, whole.
  struct Run {
    const SafetensorsFile* shard;
    std::span<const std::byte> bytes;
  };
  std::vector<Run> runs;
  bool reloaded = false;                                // a second time mends no more
  std::shared_future<std::optional<HugePages>> mapped;  // of the mapper: nothing when it did not come to the end
  uint64_t bytes_to_map = 0;                            // set before the mapper starts
  std::atomic<uint64_t> bytes_mapped = 0;
  std::jthread mapper;  // ends first

  std::optional<HugePages> count_huge_pages() const {
    std::vector<std::span<const std::byte>> parts;
    for (const Run& run : runs)
      if (const auto whole = whole_huge_pages(run.bytes); !whole.empty()) parts.push_back(whole);
    if (parts.empty()) return std::nullopt;
    HugePages pages = hadal::count_huge_pages(parts, directory);
    pages.can_mend &= !reloaded;
    return pages;
  }
};

namespace {

// Says what a folder or file is when it is something that Hadal knows and does not read.
void refuse_foreign(const fs::path& path) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(path / name, ignored); };
  if (!fs::exists(path, ignored)) fail(ErrorKind::io, "there is no checkpoint at {}", path.string());
  const std::string extension = path.extension().string();
  if (!fs::is_directory(path, ignored)) {
    if (extension == ".gguf")
      fail(ErrorKind::unsupported, "{} is a GGUF file; Hadal reads the published safetensors checkpoint",
           path.string());
    if (extension == ".safetensors")
      fail(ErrorKind::invalid_argument, "{} is one file of a checkpoint; give the folder that holds it", path.string());
    fail(ErrorKind::invalid_argument, "{} is not a folder with a checkpoint", path.string());
  }
  if (has("adapter_config.json") || has("adapter_model.safetensors"))
    fail(ErrorKind::unsupported, "{} holds a LoRA adapter; adapters are not supported", path.string());
  if (has("config.json")) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    const fs::path name = entry.path().filename();
    if (name.extension() == ".gguf")
      fail(ErrorKind::unsupported, "{} holds a GGUF file ({}); Hadal reads the published safetensors checkpoint",
           path.string(), name.string());
    if (name.extension() == ".bin" || name.extension() == ".pt" || name.extension() == ".pth")
      fail(ErrorKind::unsupported, "{} holds a PyTorch file ({}); Hadal reads the published safetensors checkpoint",
           path.string(), name.string());
  }
  fail(ErrorKind::io, "{} has no config.json", path.string());
}

bool same_type(TensorType have, const ExpectedTensor& want) {
  if (have == want.type) return true;
  // Packed FP4 and scale bytes are bit patterns; some writers have no name for them but U8.
  return have == TensorType::u8 && (want.type == TensorType::i8 || want.type == TensorType::f8_e8m0);
}

void check_tensor(const TensorView& have, const ExpectedTensor& want, const ExpectedTensor* weight) {
  if (!same_type(have.type, want))
    fail(ErrorKind::invalid_data, "tensor {} has dtype {}, expected {}", want.name, type_name(have.type),
         type_name(want.type));
  if (have.shape == want.shape) return;
  if (want.is_scale && weight && have.shape.size() == 2 && weight->shape.size() == 2) {
    for (const int64_t block : {16, 64, 128, 256}) {
      const int64_t columns = weight->shape[1] * (weight->type == TensorType::i8 ? 2 : 1);
      const bool row_blocks = want.shape[0] != weight->shape[0];
      const int64_t rows = row_blocks ? (weight->shape[0] + block - 1) / block : weight->shape[0];
      if (have.shape[0] == rows && have.shape[1] == (columns + block - 1) / block)
        fail(ErrorKind::invalid_data,
             "tensor {} has shape {}: scales of {}x{} blocks, expected {} for {}x32 blocks of {} {}", want.name,
             show_shape(have.shape), row_blocks ? block : 1, block, show_shape(want.shape), row_blocks ? 32 : 1,
             weight->name, show_shape(weight->shape));
    }
  }
  fail(ErrorKind::invalid_data, "tensor {} has shape {}, expected {}", want.name, show_shape(have.shape),
       show_shape(want.shape));
}

// The published name that a renamed tensor would have, to recognise converted checkpoints.
std::string published_name(std::string_view name) {
  for (const std::string_view prefix : {"model.", "language_model."})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  std::string result(name);
  for (const std::string_view suffix : {".weight_scale_inv", ".weight_scale", ".scale_inv", ".weight.scale"}) {
    if (result.ends_with(suffix)) {
      result.resize(result.size() - suffix.size());
      return result + ".scale";
    }
  }
  return result;
}

void check_token_map(std::span<const int32_t> map, const std::string& what, const V41Config& config) {
  for (size_t i = 0; i < map.size(); ++i)
    if (map[i] < 0 || map[i] >= config.engram_compressed_vocab_size)
      fail(ErrorKind::invalid_data, "{}: token {} maps to {}, but engram_compressed_vocab_size is {}", what, i, map[i],
           config.engram_compressed_vocab_size);
}

std::vector<int32_t> load_token_map(const fs::path& file, const V41Config& config) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  NpyArray<int32_t> map = read_npy_i32(file);
  if (map.shape != std::vector<int64_t>{config.vocab_size})
    fail(ErrorKind::invalid_data, "{} has shape {}, expected vocab_size, [{}]", file.string(), show_shape(map.shape),
         config.vocab_size);
  check_token_map(map.data, file.string(), config);
  return std::move(map.data);
}

}  // namespace

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const fs::path& directory) {
  refuse_foreign(directory);
  auto state = std::make_unique<State>();
  State& s = *state;
  s.directory = directory;
  s.config = V41Config::load(directory / "config.json");
  const CheckpointIndex index = CheckpointIndex::load(directory / index_file_name);

  std::set<std::string> files;
  for (const auto& entry : index.weight_map) files.insert(entry.second);
  s.shards.reserve(files.size());
  std::unordered_map<std::string_view, const SafetensorsFile*> owner;
  for (const std::string& file : files) {
    const SafetensorsFile& shard = s.shards.emplace_back(directory / file);
    for (const TensorView& tensor : shard.tensors()) {
      const auto [at, added] = owner.emplace(tensor.name, &shard);
      if (!added)
        fail(ErrorKind::invalid_data, "tensor {} is in two shards: {} and {}", tensor.name, at->second->path().string(),
             shard.path().string());
      s.tensors.emplace(tensor.name, tensor);
    }
  }
  for (const auto& [name, file] : index.weight_map) {
    const auto at = owner.find(name);
    if (at == owner.end() || at->second->path().filename() != file)
      fail(ErrorKind::invalid_data, "{} places tensor {} in {}, but that shard does not have it{}", index_file_name,
           name, file, at == owner.end() ? "" : "; it is in " + at->second->path().filename().string());
  }

  const std::vector<ExpectedTensor> inventory = v41_inventory(s.config);
  std::unordered_map<std::string_view, const ExpectedTensor*> expected;
  expected.reserve(inventory.size());
  for (const ExpectedTensor& want : inventory) expected.emplace(want.name, &want);
  for (const auto& [name, tensor] : s.tensors)
    if (!expected.contains(name) && !is_vision_tensor(name)) s.unknown.emplace_back(name);
  std::sort(s.unknown.begin(), s.unknown.end());
  for (const std::string& name : s.unknown)
    if (const std::string published = published_name(name); expected.contains(published))
      fail(ErrorKind::invalid_data,
           "tensor {} stands for {} under another name: the checkpoint was converted; use the published one", name,
           published);

  for (size_t i = 0; i < inventory.size(); ++i) {
    const ExpectedTensor& want = inventory[i];
    const auto at = s.tensors.find(want.name);
    if (at == s.tensors.end())
      fail(ErrorKind::invalid_data, "tensor {} is missing{}", want.name,
           want.is_scale ? ": the block scales of " + inventory[i - 1].name : "");
    if (!index.weight_map.contains(want.name))
      fail(ErrorKind::invalid_data, "{} has no entry for tensor {}, which is in {}", index_file_name, want.name,
           owner.at(want.name)->path().filename().string());
    TensorView& tensor = at->second;
    check_tensor(tensor, want, want.is_scale ? &inventory[i - 1] : nullptr);
    if (reinterpret_cast<uintptr_t>(tensor.data) % type_size(tensor.type) != 0) {
      s.copies.push_back(std::make_unique_for_overwrite<std::byte[]>(tensor.bytes));
      std::memcpy(s.copies.back().get(), tensor.data, tensor.bytes);
      tensor.data = s.copies.back().get();
      s.copied_bytes += tensor.bytes;
    }
  }
  for (const SafetensorsFile& shard : s.shards) {
    bool in_run = false;
    for (const TensorView& tensor : shard.tensors()) {
      const auto want = expected.find(tensor.name);
      const bool in_order = want != expected.end() && want->second->part != V41Part::embedding &&
                            want->second->part != V41Part::engram_table;
      if (in_order && in_run)
        s.runs.back().bytes = {s.runs.back().bytes.data(), tensor.data + tensor.bytes};
      else if (in_order)
        s.runs.push_back({&shard, {tensor.data, tensor.bytes}});
      in_run = in_order;
    }
  }
  for (const State::Run& run : s.runs) MappedFile::use_huge_pages(run.bytes);
  s.token_map = load_token_map(directory / "engram_token_map.npy", s.config);
  if (!s.unknown.empty())
    log::warn("{} has {} tensors that are not part of the model and stay unread, the first is {}", directory.string(),
              s.unknown.size(), s.unknown.front());
  for (const std::string& name : s.config.unknown_fields)
    log::warn("config.json: {} is not known and has no effect", name);
  return Checkpoint(std::move(state));
}

const V41Config& Checkpoint::config() const { return state_->config; }
const fs::path& Checkpoint::directory() const { return state_->directory; }

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto at = state_->tensors.find(name);
  return at == state_->tensors.end() ? nullptr : &at->second;
}

const TensorView& Checkpoint::tensor(std::string_view name) const {
  const TensorView* tensor = find(name);
  if (!tensor) fail(ErrorKind::invalid_data, "{} has no tensor {}", directory().string(), name);
  return *tensor;
}

std::span<const int32_t> Checkpoint::engram_token_map() const { return state_->token_map; }

void Checkpoint::set_engram_token_map(std::vector<int32_t> map) {
  if (map.size() != static_cast<size_t>(config().vocab_size))
    fail(ErrorKind::invalid_data, "the Engram token map of {} has {} entries, vocab_size is {}", directory().string(),
         map.size(), config().vocab_size);
  check_token_map(map, "the Engram token map of " + directory().string(), config());
  state_->token_map = std::move(map);
}

void Checkpoint::reload() const {
  uint64_t total = 0;
  state_->reloaded = true;
  for (const State::Run& run : state_->runs) {
    total += run.bytes.size();
    run.shard->file().drop_cached(run.bytes);
  }
  Progress progress("Reading the checkpoint", total);
  for (const State::Run& run : state_->runs)
    for (size_t at = 0; at < run.bytes.size();) {
      const size_t piece = std::min(size_t{64} << 20, run.bytes.size() - at);
      run.shard->file().read(run.bytes.subspan(at, piece));
      progress.advance(piece);
      at += piece;
    }
  progress.finish();
}

void Checkpoint::map_ahead(bool count, std::function<void(const HugePages&)> done) {
  State& s = *state_;
  int64_t total = 0;
  for (const State::Run& run : s.runs) total += static_cast<int64_t>(run.bytes.size());
  if (s.mapper.joinable() || total > read_host_memory().usable()) return;
  s.bytes_to_map = static_cast<uint64_t>(total);
  std::promise<std::optional<HugePages>> mapped;
  s.mapped = mapped.get_future().share();
  s.mapper = std::jthread(
      [&s, count, done = std::move(done), mapped = std::move(mapped)](const std::stop_token& stop) mutable {
        std::optional<HugePages> pages;
        try {
          for (const State::Run& run : s.runs)
            for (size_t at = 0; at < run.bytes.size() && !stop.stop_requested();) {
              // Small enough that the end does not wait for long when it comes from a disk.
              const size_t piece = std::min(size_t{8} << 20, run.bytes.size() - at);
              run.shard->file().read(run.bytes.subspan(at, piece));
              s.bytes_mapped += piece;
              at += piece;
            }
          if (count && !stop.stop_requested()) pages = s.count_huge_pages();
          if (pages && done) done(*pages);
        } catch (const std::exception& error) {
          log::warn("{}", error.what());  // a step that reads the page meets the same fault
        }
        mapped.set_value(pages);
      });
}

std::optional<HugePages> Checkpoint::huge_pages() const {
  const auto& mapped = state_->mapped;
  if (!mapped.valid() || mapped.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
  return mapped.get();
}

void Checkpoint::wait_until_mapped(const std::function<void(uint64_t done, uint64_t total)>& progress) const {
  const State& s = *state_;
  if (!s.mapped.valid()) return;
  if (!progress) return s.mapped.wait();
  while (s.mapped.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready)
    progress(s.bytes_mapped, s.bytes_to_map);
  progress(s.bytes_mapped, s.bytes_to_map);
}

const std::vector<SafetensorsFile>& Checkpoint::shards() const { return state_->shards; }
const std::vector<std::string>& Checkpoint::unknown_tensors() const { return state_->unknown; }
size_t Checkpoint::copied_bytes() const { return state_->copied_bytes; }

}  // namespace hadal
