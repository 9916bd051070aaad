// What the kernel benchmarks share: device buffers, random data, medians of graph replays, checks, CSV lines.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "ops/cuda/errors.h"

namespace hadal::bench {

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) { HADAL_CUDA(cudaMalloc(&data_, count * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    HADAL_CUDA(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }
  // All bits set: NaN in every floating type. What a kernel does not write stays visible.
  // Before anything that is given to any stream afterwards.
  void poison() {
    HADAL_CUDA(cudaMemset(data_, 0xff, bytes()));
    HADAL_CUDA(cudaDeviceSynchronize());
  }
  std::vector<T> host() const { return host(0, count_); }
  std::vector<T> host(size_t first, size_t count) const;

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

template <typename T>
std::vector<T> read_device(const T* data, size_t count) {
  std::vector<T> v(count);
  HADAL_CUDA(cudaMemcpy(v.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
  return v;
}
template <typename T>
std::vector<T> DeviceArray<T>::host(size_t first, size_t count) const {
  return read_device(data_ + first, count);
}

// ---- random data -----------------------------------------------------------------------------------------------
__host__ __device__ inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
// About a unit Gaussian: the sum of twelve 5-bit uniforms has the shape; bounded by 6.
__host__ __device__ inline float gaussian(uint64_t seed, uint64_t i) {
  const uint64_t u = mix(seed * 0x2545f4914f6cdd1dull + i);
  float sum = 0;
  for (int k = 0; k < 4; ++k) sum += static_cast<float>((u >> (16 * k)) & 0xffff) * (1.0f / 65536.0f) - 0.5f;
  return sum * 1.7320508f;
}

static __global__ void fill_bf16_kernel(uint16_t* out, size_t count, uint64_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += size_t{256} * gridDim.x) {
    const __nv_bfloat16 v = __float2bfloat16(gaussian(seed, i) * scale);
    out[i] = *reinterpret_cast<const uint16_t*>(&v);
  }
}
inline void fill_bf16(uint16_t* out, size_t count, uint64_t seed, float scale) {
  fill_bf16_kernel<<<2048, 256>>>(out, count, seed, scale);
  HADAL_CUDA_LAUNCHED("fill_bf16_kernel");
}

// ---- time --------------------------------------------------------------------------------------------------------
struct Time {
  double median_ms = 0, min_ms = 0, max_ms = 0;
};

// `replay` puts a graph of `inner` calls into the stream. Replays for `warm_ms` first, so that clocks settle where sustained work
// leaves them; then the median of `replays`, a call.
inline Time time_replays(cudaStream_t stream, int inner, const std::function<void()>& replay, double warm_ms,
                         int replays) {
  cudaEvent_t begin, end;
  HADAL_CUDA(cudaEventCreate(&begin));
  HADAL_CUDA(cudaEventCreate(&end));
  const auto once = [&] {
    HADAL_CUDA(cudaEventRecord(begin, stream));
    replay();
    HADAL_CUDA(cudaEventRecord(end, stream));
    HADAL_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    HADAL_CUDA(cudaEventElapsedTime(&ms, begin, end));
    return static_cast<double>(ms);
  };
  for (double spent = 0; spent < warm_ms;) spent += once();
  std::vector<double> times;
  for (int i = 0; i < replays; ++i) times.push_back(once() / inner);
  std::sort(times.begin(), times.end());
  HADAL_CUDA(cudaEventDestroy(begin));
  HADAL_CUDA(cudaEventDestroy(end));
  return {times[times.size() / 2], times.front(), times.back()};
}

// body(stream, i) for i = 0 .. inner-1 is captured into one graph; body may use i to rotate its inputs past L2.
inline Time time_graph(int inner, const std::function<void(cudaStream_t, int)>& body, double warm_ms = 150,
                       int replays = 15) {
  cudaStream_t stream;
  HADAL_CUDA(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t run;
  HADAL_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < inner; ++i) body(stream, i);
  HADAL_CUDA(cudaStreamEndCapture(stream, &graph));
  HADAL_CUDA(cudaGraphInstantiate(&run, graph, 0));
  const Time time = time_replays(
      stream, inner, [&] { HADAL_CUDA(cudaGraphLaunch(run, stream)); }, warm_ms, replays);
  HADAL_CUDA(cudaGraphExecDestroy(run));
  HADAL_CUDA(cudaGraphDestroy(graph));
  HADAL_CUDA(cudaStreamDestroy(stream));
  return time;
}

// ---- output ------------------------------------------------------------------------------------------------------
// One line a result: name, case, median, fastest, slowest, rate, floor and median over floor.
inline void report(const char* kernel, const char* shape, const Time& t, double flops, double bytes, double floor_ms) {
  std::printf("%s,%s,%.5f,%.5f,%.5f,%.0f TF/s,%.2f TB/s,%.5f,%.3f\n", kernel, shape, t.median_ms, t.min_ms, t.max_ms,
              flops / t.median_ms * 1e-9, bytes / t.median_ms * 1e-9, floor_ms,
              floor_ms > 0 ? t.median_ms / floor_ms : 0);
  std::fflush(stdout);
}

// ---- checks ------------------------------------------------------------------------------------------------------
inline int& failed_checks() {
  static int count = 0;
  return count;
}
// One line a check: the text, as of printf, and its outcome.
[[gnu::format(printf, 2, 3)]] inline void expect(bool holds, const char* text, ...) {
  va_list values;
  va_start(values, text);
  std::printf("check ");
  std::vprintf(text, values);
  std::printf(": %s\n", holds ? "pass" : "FAIL");
  std::fflush(stdout);
  va_end(values);
  failed_checks() += holds ? 0 : 1;
}
// What a program ends with.
inline int exit_code() {
  if (failed_checks() > 0) std::printf("%d checks FAILED\n", failed_checks());
  return failed_checks() > 0 ? 1 : 0;
}

// The most that one rounding to bf16 adds to an error norm.
inline constexpr double kBf16Rounding = 0x1p-9;

// |a - b| / |b|; NaN anywhere gives NaN.
inline double error_norm(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

inline float bf16_value(uint16_t b) {
  const uint32_t u = static_cast<uint32_t>(b) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

static __global__ void copy_kernel(uint4* to, const uint4* from, size_t count) {
  const size_t step = size_t{256} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < count; i += step) to[i] = from[i];
}
// The memory ceiling of this card at this moment, in TB/s read plus written.
inline double copy_rate() {
  const size_t count = size_t{1} << 26;  // 1 GiB of uint4
  DeviceArray<uint4> from(count), to(count);
  from.poison();
  const Time t = time_graph(
      4, [&](cudaStream_t s, int) { copy_kernel<<<132 * 16, 256, 0, s>>>(to.get(), from.get(), count); }, 50, 9);
  report("ceiling", "copy 1 GiB", t, 0, 2.0 * count * 16, 0);
  return 2.0 * count * 16 / t.median_ms * 1e-9;
}

}  // namespace hadal::bench
