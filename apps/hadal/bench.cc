// hadal bench: what the machine can do, and what the kernels make of it.
#include "bench.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/host_memory.h"
#include "commands.h"

namespace hadal {

TouchedMemory::TouchedMemory(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* p = std::aligned_alloc(kHugePage, bytes);
  if (p == nullptr) fail(ErrorKind::out_of_memory, "the system gave no {:.1f} MB", static_cast<double>(bytes) / 1e6);
  madvise(p, bytes, MADV_HUGEPAGE);
  bytes_ = {static_cast<std::byte*>(p), bytes};
  for (size_t i = 0; i < bytes; i += 64) bytes_[i] = static_cast<std::byte>(i >> 6);
}

TouchedMemory::~TouchedMemory() { std::free(bytes_.data()); }

CLI::Validator number_in(double least, double most) {
  return {[=](const std::string& text) {
            double value = NAN;
            if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return std::string();
            return fmt::format("Value {} not in range {} to {}", text, least, most);
          },
          fmt::format("FLOAT in [{} - {}]", least, most)};
}

void expect_memory(const std::string& what, int64_t bytes, const std::string& remedy) {
  const int64_t usable = read_host_memory().usable();
  if (bytes > usable)
    fail(ErrorKind::out_of_memory, "{}: {:.1f} GB are needed, {:.1f} GB of memory are free; {}", what,
         static_cast<double>(bytes) / 1e9, static_cast<double>(usable) / 1e9, remedy);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void add_bench(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure this machine, the kernels, steps of a whole model, and servers");
  bench->require_subcommand(1);
  add_bench_roof(*bench);
  add_bench_kernel(*bench);
  add_bench_prefill(*bench);
  add_bench_decode(*bench);
  add_bench_stage(*bench);
  add_bench_serve(*bench);
  add_bench_engine(*bench);
  add_bench_serve_offline(*bench);
}

}  // namespace hadal
