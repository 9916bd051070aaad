#include "engine/backend.h"

#include "base/error.h"
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
  }
  return "?";
}

Backend parse_backend(std::string_view name) {
  for (const Backend b : {Backend::reference, Backend::cpu, Backend::cuda})
    if (name == to_string(b)) return b;
  fail(ErrorKind::invalid_argument, "unknown backend '{}', expected reference, cpu or cuda", name);
}

Numerics parse_numerics(std::string_view name) {
  for (const Numerics n : {Numerics::bf16, Numerics::fp32, Numerics::official, Numerics::fp8})
    if (name == to_string(n)) return n;
  fail(ErrorKind::invalid_argument, "unknown numerics '{}', expected bf16, fp32, official or fp8", name);
}

std::unique_ptr<Context> make_context(Backend backend, Numerics numerics, int threads, [[maybe_unused]] bool graphs) {
  switch (backend) {
    case Backend::reference: return std::make_unique<CpuContext>(numerics, 1);
    case Backend::cpu: return std::make_unique<CpuContext>(numerics, threads);
    case Backend::cuda: break;
  }
#ifdef HADAL_HAVE_CUDA
  return std::make_unique<CudaContext>(cuda::ContextOptions{.numerics = numerics, .graphs = graphs});
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
    case Backend::cuda: break;
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

void watch_operators(OperatorWatch* watch) { watch_of_all = watch; }

std::optional<int64_t> free_device_memory([[maybe_unused]] const Context& context) {
#ifdef HADAL_HAVE_CUDA
  if (const auto* cuda = dynamic_cast<const CudaContext*>(&context))
    return static_cast<int64_t>(cuda->memory_budget() - cuda->allocated());
#endif
  return {};
}

}  // namespace hadal
