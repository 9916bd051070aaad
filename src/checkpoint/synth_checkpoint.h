// Writes a random checkpoint of any V4.1 configuration in the published layout.
#pragma once

#include "checkpoint/deepseek_v41_config.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace hadal {

struct SynthOptions {
  uint64_t seed = 41;
  int threads = 1;                                 // does not change what is written
  size_t max_shard_bytes = size_t{5'000'000'000};  // a tensor is never split, so a larger one gets a shard of its own
};

struct SynthSummary {
  size_t tensors = 0;
  size_t shards = 0;
  size_t shards_kept = 0;      // already there, with the right size and header
  uint64_t payload_bytes = 0;  // of all tensors
  uint64_t bytes_written = 0;  // by this run
  double seconds = 0;
};

// `config_text` is the configuration as given; it is copied to directory/config.json. Shards carry their
// final name only when they are complete, and the index is written last, so a run that was stopped can be
// repeated and goes on. Throws invalid_argument when the directory holds another checkpoint, io when the disk
// is too small or a write fails.
SynthSummary write_synthetic_checkpoint(const V41Config& config, std::string_view config_text,
                                        const std::filesystem::path& directory, const SynthOptions& options);

}  // namespace hadal
