// Many rows: all experts x 128 rows over one chain of k a CTA, wgmma with both operands from shared memory; then a warp a
// row adds the four chains and selects.
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/wgmma.cuh"
#include "ops/router/logits.h"

namespace hadal::cuda {
namespace {

constexpr int kMostExperts = kRouterMostExperts, kTokens = 128, kStages = 3;
constexpr int kSupplyThreads = 128;

struct Shared {
  uint8_t gate[kStages][kMostExperts * 128];  // 64 values of k of every row, in 128-byte swizzle
  uint8_t x[kStages][kTokens * 128];
  uint64_t full[kStages], empty[kStages];
};
static_assert(sizeof(Shared) <= 227 * 1024);

// Warpgroups of 128 experts each, and one that supplies.
__global__ void __launch_bounds__(kMostExperts + kSupplyThreads, 1)
    logits_kernel(const __grid_constant__ RouterLogits p, float* partial /* [chains, rows, experts] */) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& s = *reinterpret_cast<Shared*>(bytes);
  const int experts = p.select.experts, rows = p.select.rows, groups = experts / 128;
  const int chain = blockIdx.x % kRouterChains, row0 = blockIdx.x / kRouterChains * kTokens;
  const int chain_k = p.k / kRouterChains, steps = chain_k / 64;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&s.full[i], kSupplyThreads);
      mbarrier_init(&s.empty[i], 4 * groups);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  RingPosition<kStages> ring;
  if (group == groups) {
    registers_give<32>();
    wait_for_previous();
    // Eight lanes a row of 128 bytes, 16 rows at a time.
    const int unit = thread % 8, first = thread / 8;
    const uint16_t* gate = p.gate + int64_t{first} * p.k + chain * chain_k + 8 * unit;
    const uint16_t* x = p.x + (int64_t{row0} + first) * p.k + chain * chain_k + 8 * unit;
    const uint32_t offset = first * 128 + ((unit ^ (first & 7)) << 4);
    const int count = min(kTokens, rows - row0);
    for (int step = 0; step < steps; ++step, gate += 64, x += 64) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      const uint32_t gate_to = smem_address(s.gate[ring.stage]) + offset, x_to = smem_address(s.x[ring.stage]) + offset;
#pragma unroll 8
      for (int i = 0; i < experts / 16; ++i) copy16_async(gate_to + i * 2048, gate + int64_t{16 * i} * p.k);
#pragma unroll
      for (int i = 0; i < kTokens / 16; ++i)
        if (first + 16 * i < count) copy16_async(x_to + i * 2048, x + int64_t{16 * i} * p.k);
      mbarrier_arrive_after_copies(&s.full[ring.stage]);
      ring.advance();
    }
  } else {
    registers_take<160>();
    float low[64], high[64];  // two blocks of 64 experts x 128 rows
    uint64_t* previous = nullptr;
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(&s.full[ring.stage], ring.parity);
      fence_async_shared();  // rows came by cp.async; the matrix unit reads them through the other proxy
      const uint64_t a = k_major_descriptor(smem_address(s.gate[ring.stage]) + group * 128 * 128);
      const uint64_t c = k_major_descriptor(smem_address(s.gate[ring.stage]) + group * 128 * 128 + 64 * 128);
      const uint64_t b = k_major_descriptor(smem_address(s.x[ring.stage]));
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Wgmma<128>::ss(low, a + 2 * j, b + 2 * j, j > 0 || step > 0);
        Wgmma<128>::ss(high, c + 2 * j, b + 2 * j, j > 0 || step > 0);
      }
      wgmma_commit();
      wgmma_wait<1>();  // the step before is done: its stage is free
      if (previous != nullptr && thread % 32 == 0) mbarrier_arrive(previous);
      previous = &s.empty[ring.stage];
      ring.advance();
    }
    wgmma_wait<0>();
    const int lane = thread % 32, expert = group * 128 + thread / 32 * 16 + lane / 4;
    float* to = partial + int64_t{chain} * rows * experts + expert;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = row0 + 8 * j + 2 * (lane % 4) + e;
        if (row >= rows) continue;
        float* at = to + int64_t{row} * experts;
        at[0] = low[4 * j + e];
        at[8] = low[4 * j + 2 + e];
        at[64] = high[4 * j + e];
        at[72] = high[4 * j + 2 + e];
      }
  }
}

__global__ void __launch_bounds__(128) select_kernel(const __grid_constant__ RouterSelect p, const float* partial) {
  constexpr int kPerLane = kMostExperts / 32;
  __shared__ float scores[4][kMostExperts];
  const int64_t row = int64_t{blockIdx.x} * 4 + threadIdx.x / 32;
  wait_for_previous();
  if (row >= p.rows) return;
  float logit[kPerLane] = {}, part[kRouterChains][kPerLane];
#pragma unroll
  for (int c = 0; c < kRouterChains; ++c)
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = threadIdx.x % 32 + 32 * i;
      part[c][i] = e < p.experts ? partial[(int64_t{c} * p.rows + row) * p.experts + e] : 0.0f;
    }
#pragma unroll
  for (int c = 0; c < kRouterChains; ++c)
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) logit[i] += part[c][i];
  select_from_logits(p, row, logit, scores[threadIdx.x / 32]);
}

}  // namespace

bool router_takes(int experts, int k) {
  return experts % 128 == 0 && experts <= kMostExperts && k % 256 == 0 && k <= 5120;
}

void route_many(CudaContext& cuda, const RouterLogits& p) {
  static const cudaError_t prepared =
      cudaFuncSetAttribute(logits_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  HADAL_CUDA(prepared);
  const int rows = p.select.rows, experts = p.select.experts;
  Scratch scratch(cuda);
  auto* partial = scratch.get<float>(static_cast<size_t>(kRouterChains) * rows * experts);
  launch("router logits", logits_kernel,
         {.grid = dim3((rows + kTokens - 1) / kTokens * kRouterChains),
          .block = dim3(experts + kSupplyThreads),
          .shared = sizeof(Shared),
          .stream = cuda.stream()},
         p, partial);
  launch("router selection", select_kernel,
         {.grid = dim3((rows + 3) / 4), .block = dim3(128), .stream = cuda.stream(), .early = true}, p.select, partial);
}

}  // namespace hadal::cuda
