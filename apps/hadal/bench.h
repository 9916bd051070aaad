// What the benchmarks share.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "models/deepseek_v41/cost.h"

namespace hadal {

// Like CLI::Range, which lets "nan" through.
CLI::Validator number_in(double least, double most);
// Throws when `bytes` for `what` are more than is free, with both numbers and what to do.
void expect_memory(const std::string& what, int64_t bytes, const std::string& remedy);

void add_bench_roof(CLI::App& bench);
void add_bench_kernel(CLI::App& bench);
void add_bench_serve(CLI::App& bench);
void add_bench_engine(CLI::App& bench);
void add_bench_prefill(CLI::App& bench);
void add_bench_decode(CLI::App& bench);
void add_bench_stage(CLI::App& bench);
void add_bench_serve_offline(CLI::App& bench);

// Written once, so that every page is there and none is the zero page; in huge pages where the system has them, because the
// roof is what the machine can do at best.
class TouchedMemory {
 public:
  explicit TouchedMemory(size_t bytes);
  ~TouchedMemory();
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

// Of `hadal bench kernel` with the release's operators on a GPU (bench_release.cc).
struct ReleaseBench {
  std::string config = "v41-flash", rank = "ep4", device = "cpu", numerics = "bf16", op, peers;
  std::vector<int> rows;  // empty: 1, 32, 128 and 4096
  int64_t context = 131072;
  int layers = 25;  // the first that have every kind of layer
  int repeats = 9;
  bool json = false;
  bool check = false;  // the operators' cases too
};
void run_release_bench(const ReleaseBench& options);

double seconds_now();
double median_of(std::vector<double> values);  // 0 of none

// An H200: 16-bit products in a burst, copies, and 8-bit products (docs/performance.md).
inline deepseek_v41::Roof h200_roof() { return {790e12, 4.3e12, 1450e12}; }

}  // namespace hadal
