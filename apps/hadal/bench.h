// What the benchmarks share.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "base/cpu_features.h"

namespace hadal {

void add_bench_roof(CLI::App& bench);
void add_bench_kernel(CLI::App& bench);

// "--isa": the process's instruction set, chosen before anything uses one.
void add_isa_option(CLI::App& command, std::string& name);
Isa use_isa(const std::string& name);

// Written once, so that every page is there and none is the zero page.
std::vector<std::byte> touched_memory(size_t bytes);

double seconds_now();

}  // namespace hadal
