// What the load generators share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench.h"

namespace hadal {

// The requests of a load.
struct LoadOptions {
  int requests = 100, concurrency = 8, warm_up = 4;
  int prompt_words = 64, max_tokens = 64;
  double temperature = 1;
  uint64_t seed = 1;

  void add_to(CLI::App& command);
};

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, most = 0;
};
// The smallest value that at least this share of all does not exceed.
Percentiles percentiles(std::vector<double> values);

// CPU time of this process, all threads.
double process_seconds();

// A prompt of so many words that is the same for no two numbers, so that no prefix cache answers for the model.
std::string load_prompt(uint64_t seed, int number, int words);

}  // namespace hadal
