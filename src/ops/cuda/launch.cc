#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/launch.h"

#include <map>
#include <mutex>

namespace hadal::cuda {

void allow_shared(const char* name, const void* kernel, size_t bytes) {
  if (bytes == 0) return;  // anything else may be too much beside what a kernel declares itself
  int device = 0;
  HADAL_CUDA(cudaGetDevice(&device));
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, size_t> limits;
  const std::lock_guard lock(mutex);
  size_t& limit = limits[{kernel, device}];
  if (bytes <= limit) return;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), name,
             __FILE__, __LINE__);
  limit = bytes;
}

}  // namespace hadal::cuda
#endif
