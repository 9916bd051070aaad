// Where a model runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ops/operators.h"

namespace hadal {

// cuda_portable: a GPU with the kernels that every card of compute capability 8.0 or newer can run, whatever card it is.
enum class Backend : uint8_t { reference, cpu, cuda, cuda_portable };

inline bool on_gpu(Backend backend) { return backend >= Backend::cuda; }
std::string_view to_string(Backend backend);
// Throw invalid_argument naming the value and the choices.
Backend parse_backend(std::string_view name);
Numerics parse_numerics(std::string_view name);

// The instruction set of the CPU kernels, by name (base/cpu_features.h); empty: the best of this CPU. One per process, so
// before its first context. Throws invalid_argument for an unknown name and for a backend that has no such kernels,
// unsupported when this CPU lacks it. Warns when a lower one is faster here.
void use_isa(Backend backend, std::string_view name);

// Choices of a GPU.
struct GpuOptions {
  bool graphs = true;                         // decode steps are replayed as CUDA graphs
  TablePlace tables = TablePlace::automatic;  // Engram tables
};
TablePlace parse_table_place(std::string_view name);  // auto, gpu, host

// threads: 0 = all CPUs that the process may use; the reference runs on one. Throws unsupported when this binary or this
// machine has no such backend, or the backend no such numerics. Warns when the card has to take the portable kernels.
std::unique_ptr<Context> make_context(Backend backend, Numerics numerics, int threads, const GpuOptions& gpu = {});
const Operators& operators_of(Backend backend);
// "cpu (avx512, 16 threads)"; of other backends the name.
std::string describe(Backend backend, const Context& context);
// What the context may still allocate of a device's own memory; nothing when that is the host's.
std::optional<int64_t> free_device_memory(const Context& context);
// Bytes of the device in use now, by everybody, and those of this context's step memory; 0 where memory is the host's.
int64_t used_device_memory(const Context& context);
int64_t step_memory(const Context& context);

class OperatorWatch;
// From now on operators_of gives out tables that show every call to `watch` (null: as they are). For tests of whole engines.
void watch_operators(OperatorWatch* watch);

}  // namespace hadal
