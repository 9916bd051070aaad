#include "checkpoint/synth_checkpoint.h"

#include "base/error.h"
#include "base/npy.h"
#include "base/progress.h"
#include "checkpoint/checksum.h"
#include "checkpoint/index.h"
#include "checkpoint/json.h"
#include "checkpoint/output_file.h"
#include "checkpoint/synth_weights.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace hadal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t chunk_bytes = 4 << 20;

struct Shard {
  std::string file;
  std::vector<size_t> tensors;  // positions in the inventory, in file order
  std::string header;           // length field included
  uint64_t data_bytes = 0;
  uint64_t bytes() const { return header.size() + data_bytes; }
};

// Wide elements first, as the published shards have it, so that all data is aligned in a mapped file.
void finish_shard(Shard& shard, const std::vector<ExpectedTensor>& inventory, uint64_t seed) {
  std::stable_sort(shard.tensors.begin(), shard.tensors.end(),
                   [&](size_t a, size_t b) { return type_size(inventory[a].type) > type_size(inventory[b].type); });
  // The seed tells shards of one run from those of another when a run is resumed.
  std::string header = fmt::format(R"({{"__metadata__":{{"format":"pt","hadal_synth_seed":"{}"}})", seed);
  uint64_t at = 0;
  for (const size_t i : shard.tensors) {
    const ExpectedTensor& t = inventory[i];
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", t.name, type_name(t.type),
                          fmt::join(t.shape, ","), at, at + t.bytes());
    at += t.bytes();
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  shard.header.assign(reinterpret_cast<const char*>(&length), 8);
  shard.header += header;
  shard.data_bytes = at;
}

// Cuts the inventory into shards in order, a weight and its scale in the same one. Engram tables come last,
// each alone.
std::vector<Shard> plan_shards(const std::vector<ExpectedTensor>& inventory, const SynthOptions& options) {
  std::vector<Shard> shards(1), tables;
  uint64_t bytes = 0;
  for (size_t i = 0; i < inventory.size();) {
    size_t end = i + 1;
    uint64_t size = inventory[i].bytes();
    while (end < inventory.size() && inventory[end].is_scale) size += inventory[end++].bytes();
    const bool table = inventory[i].part == V41Part::engram_table;
    if (!table && bytes > 0 && bytes + size > options.max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    Shard& shard = table ? tables.emplace_back() : shards.back();
    if (!table) bytes += size;
    for (; i < end; ++i) shard.tensors.push_back(i);
  }
  std::move(tables.begin(), tables.end(), std::back_inserter(shards));
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    finish_shard(shards[i], inventory, options.seed);
  }
  return shards;
}

bool is_complete(const fs::path& path, const Shard& shard) {
  std::error_code error;
  if (fs::file_size(path, error) != shard.bytes() || error) return false;
  const MappedFile file(path);
  return std::memcmp(file.bytes().data(), shard.header.data(), shard.header.size()) == 0;
}

std::string checksum_file(const fs::path& path, Progress& progress) {
  const MappedFile file(path);
  Checksum checksum;
  for (size_t at = 0; at < file.bytes().size(); at += chunk_bytes) {
    const std::span part = file.bytes().subspan(at, std::min(size_t{chunk_bytes}, file.bytes().size() - at));
    checksum.add(part);
    progress.advance(part.size());
  }
  return checksum.hex();
}

struct Chunk {
  size_t tensor;
  int64_t begin, end;  // rows
  size_t bytes;
};

std::vector<Chunk> cut(const Shard& shard, const std::vector<ExpectedTensor>& inventory) {
  std::vector<Chunk> chunks;
  for (const size_t i : shard.tensors) {
    const int64_t rows = SynthWeights::rows(inventory[i]), row_bytes = SynthWeights::row_bytes(inventory[i]);
    constexpr int64_t step = SynthWeights::row_step;
    const int64_t count = std::max<int64_t>(1, chunk_bytes / (row_bytes * step)) * step;
    for (int64_t begin = 0; begin < rows; begin += count) {
      const int64_t end = std::min(begin + count, rows);
      chunks.push_back({i, begin, end, size_t((end - begin) * row_bytes)});
    }
  }
  return chunks;
}

// Threads make chunks ahead of the writer, which takes them in order: one file position, one running
// checksum.
class ChunkPipeline {
 public:
  ChunkPipeline(const SynthWeights& weights, const std::vector<Chunk>& chunks, int threads)
      : weights_(weights), chunks_(chunks), slots_(size_t(2 * threads + 2)) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { produce(); });
  }
  ~ChunkPipeline() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
  }

  // Hands chunk after chunk to `consume(bytes)`.
  template <typename Consume>
  void drain(Consume consume) {
    for (size_t i = 0; i < chunks_.size(); ++i) {
      Slot& slot = slots_[i % slots_.size()];
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return slot.ready || error_; });
        if (error_) std::rethrow_exception(error_);
      }
      consume(std::span<const std::byte>(slot.data.data(), chunks_[i].bytes));
      {
        const std::lock_guard lock(mutex_);
        slot.ready = false;
        ++taken_;
      }
      changed_.notify_all();
    }
  }

 private:
  struct Slot {
    std::vector<std::byte> data;
    bool ready = false;
  };

  void produce() {
    for (;;) {
      size_t i = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || next_ == chunks_.size() || next_ < taken_ + slots_.size(); });
        if (stop_ || next_ == chunks_.size()) return;
        i = next_++;
      }
      Slot& slot = slots_[i % slots_.size()];
      try {
        const Chunk& chunk = chunks_[i];
        if (slot.data.size() < chunk.bytes) slot.data.resize(chunk.bytes);
        weights_.fill(chunk.tensor, chunk.begin, chunk.end, slot.data.data());
      } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        slot.ready = true;
      }
      changed_.notify_all();
    }
  }

  const SynthWeights& weights_;
  const std::vector<Chunk>& chunks_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0, taken_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;  // last, so that they end before what they use
};

std::string write_shard(const Shard& shard, const fs::path& path, const SynthWeights& weights,
                        const std::vector<ExpectedTensor>& inventory, int threads, Progress& progress) {
  OutputFile file(path);
  Checksum checksum;
  const auto put = [&](std::span<const std::byte> bytes) {
    checksum.add(bytes);
    file.write(bytes);
    progress.advance(bytes.size());
  };
  put(std::as_bytes(std::span(shard.header)));
  const std::vector<Chunk> chunks = cut(shard, inventory);
  ChunkPipeline(weights, chunks, threads).drain(put);
  file.commit();
  return checksum.hex();
}

// Token id -> compressed id: the identity while it fits, otherwise pairs of neighbours fold from the end.
std::vector<int32_t> token_map(const V41Config& config) {
  const int fold = config.vocab_size - config.engram_compressed_vocab_size;
  const int first_pair = config.vocab_size - 2 * fold;
  std::vector<int32_t> map(size_t(config.vocab_size));
  for (int i = 0; i < config.vocab_size; ++i) {
    // More than half to fold: spread evenly instead.
    const int64_t even = int64_t{i} * config.engram_compressed_vocab_size / config.vocab_size;
    map[size_t(i)] = first_pair < 0 ? int32_t(even) : i < first_pair ? i : first_pair + (i - first_pair) / 2;
  }
  return map;
}

void write_text(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

// Refuses to mix two checkpoints in one folder.
void prepare_directory(const fs::path& directory, std::string_view config_text) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail(ErrorKind::io, "cannot create the folder {}: {}", directory.string(), error.message());
  const fs::path config = directory / "config.json";
  if (fs::exists(config, error) && read_text_file(config) != config_text)
    fail(ErrorKind::invalid_argument, "{} already holds a checkpoint with another config.json; choose an empty folder",
         directory.string());
}

void check_disk(const fs::path& directory, uint64_t needed) {
  struct statvfs info = {};
  if (::statvfs(directory.c_str(), &info) != 0) return;
  const uint64_t free = uint64_t(info.f_bavail) * info.f_frsize;
  if (free < needed)
    fail(ErrorKind::io, "{} needs {:.2f} GB more, but its disk has {:.2f} GB free", directory.string(),
         double(needed) * 1e-9, double(free) * 1e-9);
}

}  // namespace

SynthSummary write_synthetic_checkpoint(const V41Config& config, std::string_view config_text,
                                        const fs::path& directory, const SynthOptions& options) {
  const std::vector<ExpectedTensor> inventory = v41_inventory(config);
  const std::vector<Shard> shards = plan_shards(inventory, options);
  prepare_directory(directory, config_text);

  SynthSummary summary;
  summary.tensors = inventory.size();
  summary.shards = shards.size();
  std::vector<bool> complete;
  uint64_t total = 0, needed = 0;
  for (const Shard& shard : shards) {
    complete.push_back(is_complete(directory / shard.file, shard));
    summary.payload_bytes += shard.data_bytes;
    total += shard.bytes();
    if (!complete.back()) needed += shard.bytes();
  }
  constexpr uint64_t small_files = 64 << 20;  // index, token map, and some air
  if (needed > 0) check_disk(directory, needed + small_files);

  write_text(directory / "config.json", config_text);
  write_npy(directory / "engram_token_map.npy", token_map(config));
  const SynthWeights weights(config, inventory, options.seed);
  std::map<std::string, std::string> checksums, weight_map;
  Progress progress(needed > 0 ? "writing " + directory.filename().string() : "checking", total);
  for (size_t i = 0; i < shards.size(); ++i) {
    const fs::path path = directory / shards[i].file;
    if (complete[i]) {
      checksums[shards[i].file] = checksum_file(path, progress);
      ++summary.shards_kept;
    } else {
      checksums[shards[i].file] = write_shard(shards[i], path, weights, inventory, options.threads, progress);
      summary.bytes_written += shards[i].bytes();
    }
    for (const size_t t : shards[i].tensors) weight_map[inventory[t].name] = shards[i].file;
  }
  progress.finish();
  summary.seconds = progress.seconds();

  std::string index =
      fmt::format("{{\n\"metadata\": {{\n\"total_size\": {},\n\"checksums\": {{", summary.payload_bytes);
  const auto add = [&](const std::map<std::string, std::string>& map) {
    const char* separator = "\n";
    for (const auto& [name, value] : map) {
      index += fmt::format("{}\"{}\": \"{}\"", separator, name, value);
      separator = ",\n";
    }
  };
  add(checksums);
  index += "\n}\n},\n\"weight_map\": {";
  add(weight_map);
  index += "\n}\n}\n";
  write_text(directory / index_file_name, index);
  return summary;
}

}  // namespace hadal
