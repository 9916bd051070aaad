#include "engine/backend.h"

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/operator_watch.h"
#include "ops/cpu/context.h"
#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/context.h"
#endif

namespace hadal {

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::reference: return "reference";
    case Backend::cpu: return "cpu";
    case Backend::cuda: return "cuda";
    case Backend::cuda_portable: return "cuda:portable";
  }
  return "?";
}

Backend parse_backend(std::string_view name) {
  for (const Backend b : {Backend::reference, Backend::cpu, Backend::cuda, Backend::cuda_portable})
    if (name == to_string(b)) return b;
  fail(ErrorKind::invalid_argument, "unknown backend '{}', expected reference, cpu, cuda or cuda:portable", name);
}

Numerics parse_numerics(std::string_view name) {
  for (const Numerics n : {Numerics::bf16, Numerics::fp32, Numerics::official, Numerics::fp8})
    if (name == to_string(n)) return n;
  fail(ErrorKind::invalid_argument, "unknown numerics '{}', expected bf16, fp32, official or fp8", name);
}

void use_isa(Backend backend, std::string_view name) {
  if (name.empty()) return;
  const Isa isa = parse_isa(name);
  if (backend != Backend::cpu)
    fail(ErrorKind::invalid_argument, "isa {} names kernels of the cpu backend, and the backend is {}; leave it out",
         name, to_string(backend));
  choose_isa(isa);
  const Processor processor = this_processor();
  if (const std::string_view reason = reason_against(isa, processor); !reason.empty())
    log::warn("{} is slower than {} here: {}", name, to_string(best_isa(supported_isas(), processor)), reason);
}

TablePlace parse_table_place(std::string_view name) {
  if (name == "auto") return TablePlace::automatic;
  if (name == "gpu") return TablePlace::device;
  if (name == "host") return TablePlace::host;
  fail(ErrorKind::invalid_argument, "unknown place '{}' for Engram tables, expected auto, gpu or host", name);
}

std::unique_ptr<Context> make_context(Backend backend, Numerics numerics, int threads,
                                      [[maybe_unused]] const GpuOptions& gpu) {
  switch (backend) {
    case Backend::reference: return std::make_unique<CpuContext>(numerics, 1);
    case Backend::cpu: return std::make_unique<CpuContext>(numerics, threads);
    case Backend::cuda:
    case Backend::cuda_portable: break;
  }
#ifdef HADAL_HAVE_CUDA
  const bool portable = backend == Backend::cuda_portable;
  auto context = std::make_unique<CudaContext>(
      cuda::ContextOptions{.numerics = numerics, .graphs = gpu.graphs, .tables = gpu.tables, .portable = portable});
  if (context->portable() && !portable)
    log::warn("{} is no Hopper GPU: its operators are the portable ones, many times slower than on an H100 or H200",
              context->device().name);
  return context;
#else
  fail(ErrorKind::unsupported,
       "this binary was built without CUDA; rebuild with the CUDA 13 toolkit, or use the cpu backend");
#endif
}

namespace {

OperatorWatch* watch_of_all = nullptr;

const Operators& plain_operators_of(Backend backend) {
  switch (backend) {
    case Backend::reference: return reference_operators();
    case Backend::cpu: return cpu_operators();
    case Backend::cuda:
    case Backend::cuda_portable: break;
  }
#ifdef HADAL_HAVE_CUDA
  return cuda_operators();
#else
  fail(ErrorKind::unsupported, "this binary was built without CUDA");
#endif
}

}  // namespace

const Operators& operators_of(Backend backend) {
  const Operators& plain = plain_operators_of(backend);
  return watch_of_all == nullptr ? plain : watched_operators(plain, *watch_of_all);
}

std::string describe(Backend backend, const Context& context) {
  const auto* cpu = dynamic_cast<const CpuContext*>(&context);
  if (backend != Backend::cpu || cpu == nullptr) return std::string(to_string(backend));
  return fmt::format("cpu ({}, {} threads)", to_string(cpu->isa()), cpu->threads());
}

void watch_operators(OperatorWatch* watch) { watch_of_all = watch; }

std::optional<int64_t> free_device_memory([[maybe_unused]] const Context& context) {
#ifdef HADAL_HAVE_CUDA
  if (const auto* cuda = dynamic_cast<const CudaContext*>(&context))
    return static_cast<int64_t>(cuda->memory_budget() - cuda->allocated());
#endif
  return {};
}

int64_t used_device_memory([[maybe_unused]] const Context& context) {
#ifdef HADAL_HAVE_CUDA
  if (const auto* cuda = dynamic_cast<const CudaContext*>(&context)) return static_cast<int64_t>(cuda->memory_in_use());
#endif
  return 0;
}

int64_t step_memory([[maybe_unused]] const Context& context) {
#ifdef HADAL_HAVE_CUDA
  if (const auto* cuda = dynamic_cast<const CudaContext*>(&context))
    return static_cast<int64_t>(cuda->allocated_by_purpose().at("step memory"));
#endif
  return 0;
}

}  // namespace hadal
