// Kernel launches with attributes.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/errors.h"

namespace hadal::cuda {

// Whether kernels of this thread's current context wait for the one in front themselves, as those built for Hopper do.
// CudaContext::of sets it; kernels in their portable form do not wait.
inline thread_local bool launches_early = true;

struct LaunchShape {
  dim3 grid, block;
  size_t shared = 0;  // dynamic; the kernel's limit is raised where that is needed
  cudaStream_t stream = nullptr;
  bool cooperative = false;  // all CTAs are resident together: they wait for each other
  // May start before the kernel in front has ended: before its wait_for_previous() it writes nothing, and reads weights and
  // what is uploaded when a step begins. Every CTA must get there: what comes behind relies on what lies in front.
  bool early = false;
  unsigned cluster = 1;  // CTAs of a cluster, along x
};

// Raises the limit of dynamic shared memory of a kernel on the current device to `bytes`; never lowers it, since contexts of
// other threads launch the same kernel. launch() is the only caller.
void allow_shared(const char* name, const void* kernel, size_t bytes);

template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[3];
  unsigned count = 0;
  if (shape.cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  if (shape.early && launches_early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
  }
  allow_shared(name, reinterpret_cast<const void*>(kernel), shape.shared);
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared;
  config.stream = shape.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name, __FILE__, __LINE__);
}

}  // namespace hadal::cuda
