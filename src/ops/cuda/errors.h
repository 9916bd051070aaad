// Error checks for CUDA code. No fmt here: fmt 9 does not compile under nvcc, so messages are built in errors.cc.
#pragma once

#include <cuda_runtime_api.h>

namespace hadal::cuda {

// Throws hadal::Error: out_of_memory when the device is full, unsupported without driver or GPU, else internal.
[[noreturn]] void fail_cuda(cudaError_t status, const char* what, const char* file, int line);
// Throws hadal::Error (unsupported) for a shape that no kernel here takes.
[[noreturn]] void fail_shape(const char* op, const char* requirement, long long have);
[[noreturn]] void fail_check(const char* condition, const char* file, int line);

inline void check_cuda(cudaError_t status, const char* what, const char* file, int line) {
  if (status != cudaSuccess) [[unlikely]]
    fail_cuda(status, what, file, line);
}

}  // namespace hadal::cuda

// HADAL_CUDA(cudaMalloc(&p, n)): throws on failure, naming the call and the CUDA message.
#define HADAL_CUDA(call) ::hadal::cuda::check_cuda((call), #call, __FILE__, __LINE__)

// After a kernel launch. Configuration errors show here; errors inside a kernel show at the next wait.
#define HADAL_CUDA_LAUNCHED(kernel) \
  ::hadal::cuda::check_cuda(cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)

// HADAL_CHECK for .cu files.
#define HADAL_CUDA_CHECK(condition)                              \
  do {                                                           \
    if (!(condition)) [[unlikely]]                               \
      ::hadal::cuda::fail_check(#condition, __FILE__, __LINE__); \
  } while (false)
