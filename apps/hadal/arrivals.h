// Recorded loads: when requests came and how long they were.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hadal {

struct Arrival {
  double seconds = 0;            // from the start
  int64_t prompt_tokens = 0;     // 0: as the command's other options say
  int64_t max_tokens = 0;        // the same
  std::vector<uint64_t> blocks;  // names of the prompt's blocks of 512 tokens: the same name, the same tokens
};

// One JSON object in each line: "timestamp" in milliseconds, and perhaps "input_length", "output_length" and "hash_ids", as
// Mooncake's traces have them (kvcache-ai/Mooncake, FAST25-release/traces). In the order of time. Throws Error(io) or
// Error(invalid_data) that names the line.
std::vector<Arrival> read_arrivals(const std::filesystem::path& file);

// Token ids of such a prompt. `number` names blocks that have no name.
std::vector<int32_t> prompt_of(const Arrival& arrival, uint64_t number);

}  // namespace hadal
