#ifdef HADAL_HAVE_CUDA
#include "ops/cuda/errors.h"

#include "base/error.h"

namespace hadal::cuda {

void fail_cuda(cudaError_t status, const char* what, const char* file, int line) {
  const char* name = cudaGetErrorName(status);
  const char* text = cudaGetErrorString(status);
  switch (status) {
    case cudaErrorMemoryAllocation:
      fail(ErrorKind::out_of_memory, "{}: {} ({}) at {}:{}", what, text, name, file, line);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      fail(ErrorKind::unsupported,
           "no usable CUDA device: {} ({}); run on a machine with an NVIDIA GPU and driver, or use --device cpu", text,
           name);
    default: fail(ErrorKind::internal, "{}: {} ({}) at {}:{}", what, text, name, file, line);
  }
}

void fail_shape(const char* op, const char* requirement, long long have) {
  fail(ErrorKind::unsupported, "the CUDA path of {} needs {}, got {}", op, requirement, have);
}

void fail_check(const char* condition, const char* file, int line) {
  fail(ErrorKind::internal, "check failed: {} ({}:{})", condition, file, line);
}

}  // namespace hadal::cuda
#endif
