// Where a model runs.
#pragma once

#include <memory>
#include <string_view>

#include "ops/operators.h"

namespace hadal {

enum class Backend : uint8_t { reference, cpu, cuda };

std::string_view to_string(Backend backend);
// Throw invalid_argument naming the value and the choices.
Backend parse_backend(std::string_view name);
Numerics parse_numerics(std::string_view name);

// threads: 0 = all CPUs that the process may use; the reference runs on one. Throws unsupported when this binary or this
// machine has no such backend, or the backend no such numerics. `graphs`: decode steps are replayed as CUDA graphs.
std::unique_ptr<Context> make_context(Backend backend, Numerics numerics, int threads, bool graphs = true);
const Operators& operators_of(Backend backend);

}  // namespace hadal
