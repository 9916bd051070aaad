// hadal bench: what the machine can do, and what the kernels make of it.
#include "bench.h"

#include <chrono>

#include "commands.h"

namespace hadal {

void add_isa_option(CLI::App& command, std::string& name) {
  command.add_option("--isa", name,
                     "Instruction set: scalar, avx2, avx512 or avx512-bf16 (default: the best of this CPU)");
}

Isa use_isa(const std::string& name) {
  if (!name.empty()) choose_isa(parse_isa(name));
  return process_isa();
}

std::vector<std::byte> touched_memory(size_t bytes) {
  std::vector<std::byte> memory(bytes);
  for (size_t i = 0; i < bytes; i += 64) memory[i] = static_cast<std::byte>(i >> 6);
  return memory;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine and the kernels");
  bench->require_subcommand(1);
  add_bench_roof(*bench);
  add_bench_kernel(*bench);
}

}  // namespace hadal
