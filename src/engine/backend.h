// Where a model runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
// What the context may still allocate of a device's own memory; nothing when that is the host's.
std::optional<int64_t> free_device_memory(const Context& context);

class OperatorWatch;
// From now on operators_of gives out tables that show every call to `watch` (null: as they are). For tests of whole engines.
void watch_operators(OperatorWatch* watch);

}  // namespace hadal
