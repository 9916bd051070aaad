// A DeepSeek-V4.1 checkpoint as published: config.json, model.safetensors.index.json and mapped shards;
// nothing converted.
#pragma once

#include "checkpoint/deepseek_v41_config.h"
#include "checkpoint/deepseek_v41_inventory.h"
#include "checkpoint/huge_pages.h"
#include "checkpoint/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hadal {

class Checkpoint {
 public:
  // Maps every shard and validates names, dtypes, shapes and block sizes of the whole inventory. No weight is
  // read, except that BF16 and F32 tensors whose data is not aligned to their element (the format allows it)
  // are copied once, so that every TensorView here may be read in place. Throws invalid_data, io, or
  // unsupported (GGUF, LoRA, other models).
  static Checkpoint open(const std::filesystem::path& directory);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const V41Config& config() const;
  const std::filesystem::path& directory() const;
  // Throws invalid_data naming the tensor when it is not there.
  const TensorView& tensor(std::string_view name) const;
  const TensorView* find(std::string_view name) const;

  // Token id -> compressed id, from engram_token_map.npy (int32 [vocab_size]); empty when the file is absent.
  std::span<const int32_t> engram_token_map() const;
  // The map for a checkpoint without that file. Throws invalid_data when size or values do not fit the configuration.
  void set_engram_token_map(std::vector<int32_t> map);

  // Reads all that is read in order (not the rows of the embedding and of Engram) from the disk again, into huge pages
  // where the kernel has them for files. Pages that a download or a copy left behind are small ones, from which a CPU
  // decodes about a fifth slower. Shows its progress. Throws io.
  void reload() const;

  // Starts a thread that maps all that is read in order, so that no step waits for page faults (which take longer than to
  // read the page); nothing when that does not fit into memory. It ends with the checkpoint. With `count` the
  // thread then counts huge pages (6 ms a GB where there are none), where any would fit, and tells `done`.
  void map_ahead(bool count = false, std::function<void(const HugePages&)> done = {});
  // What it has counted; nothing before.
  std::optional<HugePages> huge_pages() const;
  // Returns when nothing is left to map in the background. Until then `progress` hears five times a second how many of how
  // many bytes are mapped, and then once more.
  void wait_until_mapped(const std::function<void(uint64_t done, uint64_t total)>& progress = {}) const;

  const std::vector<SafetensorsFile>& shards() const;
  // Tensors that the configuration does not ask for, apart from vision; not read.
  const std::vector<std::string>& unknown_tensors() const;
  // Bytes held by aligned copies.
  size_t copied_bytes() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hadal
