// The two patterns of synchronisation that racecheck does not follow, each in its smallest form beside the same data moved in
// an order that it does follow. Under `compute-sanitizer --tool racecheck` the first of a pair is reported and the second is
// not, although PTX orders both; so a report of such a pattern in a kernel says nothing (docs/development.md, "Races").
//
// usage: hadal_racecheck_patterns NAME   prints whether the values are right
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {
namespace {

constexpr int kTurns = 64;

__device__ __forceinline__ void announce(int barrier) { asm volatile("bar.arrive %0, 256;" ::"r"(barrier) : "memory"); }

// Two groups of 128 threads pass a row to and fro. One says that its row is there by bar.arrive and goes on, the other waits
// by bar.sync: the producer and consumer of the PTX manual's page on `barrier`. In the other form both use bar.sync.
template <bool Arrive>
__global__ void exchange(float* out) {
  __shared__ float row[2][128];
  const int group = threadIdx.x / 128, t = threadIdx.x % 128;
  const auto tell = [](int barrier) {
    if constexpr (Arrive)
      announce(barrier);
    else
      named_barrier(barrier, 256);
  };
  float v = static_cast<float>(t % 2);
  for (int i = 0; i < kTurns; ++i) {
    if (group == 0) {
      row[0][t] = v;
      tell(1);
      named_barrier(2, 256);
      v = row[1][t ^ 1] + 1;
    } else {
      named_barrier(1, 256);
      v = row[0][t ^ 1] + 1;
      row[1][t] = v;
      tell(2);
    }
  }
  out[threadIdx.x] = v;
}

// A ring of two stages that one thread fills with bulk copies. Four warps read a stage, all lanes; then either lane 0 of each
// arrives for its warp behind a __syncwarp, or every lane arrives for itself.
template <bool WarpArrives>
__global__ void ring(const uint4* in, uint4* out) {
  constexpr int kStages = 2;
  __shared__ alignas(128) uint4 stage[kStages][128];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], WarpArrives ? 4 : 128);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  RingPosition<kStages> at;
  if (threadIdx.x == 128)
    for (int i = 0; i < kTurns; ++i, at.advance()) {
      mbarrier_wait(&empty[at.stage], at.parity ^ 1);
      mbarrier_arrive_expect(&full[at.stage], sizeof stage[0]);
      bulk_copy(stage[at.stage], in + i * 128, sizeof stage[0], &full[at.stage]);
    }
  if (threadIdx.x >= 128) return;
  uint4 sum{};
  for (int i = 0; i < kTurns; ++i, at.advance()) {
    mbarrier_wait(&full[at.stage], at.parity);
    const uint4 v = stage[at.stage][threadIdx.x];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    if (WarpArrives) __syncwarp();
    if (!WarpArrives || threadIdx.x % 32 == 0) mbarrier_arrive(&empty[at.stage]);
  }
  out[threadIdx.x] = sum;
}

bool ok(cudaError_t status) {
  if (status != cudaSuccess) std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  return status == cudaSuccess;
}

int run(const char* name) {
  void *in = nullptr, *out = nullptr;
  std::vector<uint32_t> host(size_t{kTurns} * 512), sum(512, 0), got(512);
  for (size_t i = 0; i < host.size(); ++i) sum[i % 512] += host[i] = static_cast<uint32_t>(i * 2654435761u);
  if (!ok(cudaMalloc(&in, host.size() * 4)) || !ok(cudaMalloc(&out, 2048)) ||
      !ok(cudaMemcpy(in, host.data(), host.size() * 4, cudaMemcpyHostToDevice)))
    return 1;
  const bool rings = std::strncmp(name, "ring", 4) == 0;
  if (std::strcmp(name, "exchange-arrive") == 0)
    exchange<true><<<1, 256>>>(static_cast<float*>(out));
  else if (std::strcmp(name, "exchange-sync") == 0)
    exchange<false><<<1, 256>>>(static_cast<float*>(out));
  else if (std::strcmp(name, "ring-warp") == 0)
    ring<true><<<1, 160>>>(static_cast<const uint4*>(in), static_cast<uint4*>(out));
  else if (std::strcmp(name, "ring-lanes") == 0)
    ring<false><<<1, 160>>>(static_cast<const uint4*>(in), static_cast<uint4*>(out));
  else
    return std::fprintf(stderr, "one of exchange-arrive, exchange-sync, ring-warp, ring-lanes; not %s\n", name), 2;
  if (!ok(cudaGetLastError()) || !ok(cudaMemcpy(got.data(), out, rings ? 2048 : 1024, cudaMemcpyDeviceToHost)))
    return 1;
  bool right = true;
  for (int t = 0; t < 256; ++t) {
    // A value changes hands twice a turn, between neighbours: group 0's last is its own first and all the steps since.
    const float want =
        static_cast<float>(t % 2 ^ (t < 128 ? 0 : 1)) + static_cast<float>(2 * kTurns - (t < 128 ? 0 : 1));
    float v;
    std::memcpy(&v, &got[static_cast<size_t>(t)], 4);
    if (!rings) right &= v == want;
  }
  if (rings) right = got == sum;
  std::printf("%s: %s\n", name, right ? "right" : "WRONG");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace hadal::cuda

int main(int argc, char** argv) { return hadal::cuda::run(argc == 2 ? argv[1] : ""); }
