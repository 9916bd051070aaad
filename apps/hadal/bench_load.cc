#include "bench_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <random>

namespace hadal {

void LoadOptions::add_to(CLI::App& command) {
  command.add_option("--requests", requests, "How many requests")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command.add_option("--concurrency", concurrency, "Most requests at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--warm-up", warm_up, "Requests before that are not counted")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command.add_option("--prompt-words", prompt_words, "Words of a prompt")
      ->check(CLI::Range(2, 1'000'000))
      ->capture_default_str();
  command.add_option("--max-tokens", max_tokens, "Tokens of each answer")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--temperature", temperature, "Sampling temperature")
      ->check(number_in(0, 100))
      ->capture_default_str();
  command.add_option("--seed", seed, "Other prompts and, with a rate, other moments")->capture_default_str();
}

Percentiles percentiles(std::vector<double> values) {
  Percentiles p;
  if (values.empty()) return p;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
  };
  for (const double v : values) p.mean += v / static_cast<double>(values.size());
  p.p50 = at(0.5);
  p.p90 = at(0.9);
  p.p99 = at(0.99);
  p.p999 = at(0.999);
  p.most = values.back();
  return p;
}

double process_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string load_prompt(uint64_t seed, int number, int words) {
  static constexpr const char* kWords[] = {"river", "stone",  "lamp",  "garden", "winter", "bread",  "paper", "window",
                                           "horse", "silver", "cloud", "market", "forest", "letter", "music", "island"};
  std::mt19937_64 random(seed * 1'000'003 + static_cast<uint64_t>(number));
  std::string prompt = fmt::format("{} {}", number, seed);
  for (int i = 2; i < words; ++i) prompt += fmt::format(" {}", kWords[random() % std::size(kWords)]);
  return prompt;
}

}  // namespace hadal
