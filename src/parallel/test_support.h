// Arrays on a GPU for tests.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "ops/cuda/errors.h"

namespace hadal::cuda {

template <typename T>
class OnGpu {  // memory on the current device
 public:
  explicit OnGpu(const std::vector<T>& host) : count_(host.size()) {
    void* data = nullptr;
    HADAL_CUDA(cudaMalloc(&data, std::max<size_t>(count_, 1) * sizeof(T)));
    data_ = static_cast<T*>(data);
    HADAL_CUDA(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnGpu(OnGpu&& other) noexcept : data_(std::exchange(other.data_, nullptr)), count_(other.count_) {}
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  OnGpu& operator=(OnGpu&&) = delete;
  ~OnGpu() { (void)cudaFree(data_); }
  T* get() const { return data_; }
  std::vector<T> host() const { return read(data_, count_); }
  static std::vector<T> read(const T* data, size_t count) {
    std::vector<T> v(count);
    HADAL_CUDA(cudaMemcpy(v.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
  }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

inline std::vector<uint16_t> bits(const std::vector<float>& values) {
  std::vector<uint16_t> b;
  for (const float v : values) b.push_back(to_bf16(v));
  return b;
}

}  // namespace hadal::cuda
