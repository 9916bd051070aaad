// Many rows: all experts x 128 rows over one chain of k a CTA, wgmma with both operands from shared memory; then a warp a
// row adds the four chains and selects. Two CTAs of a cluster have different rows and bring each other half of the gate, whose
// rows would otherwise be three quarters of what comes from L2.
#include "ops/cuda/boxes.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma.cuh"
#include "ops/router/logits.h"

namespace hadal::cuda {
namespace {

constexpr int kMostExperts = kRouterMostExperts, kTokens = 128, kStages = 3;
constexpr int kSupplyThreads = 128, kCluster = 2;

struct Logits {
  CUtensorMap gate, x;
  int rows, experts, k;
};

struct Shared {
  uint8_t gate[kStages][kMostExperts * 128];  // 64 values of k of every row, in 128-byte swizzle
  uint8_t x[kStages][kTokens * 128];
  uint64_t full[kStages], empty[kStages];
};
static_assert(sizeof(Shared) <= 227 * 1024);

// Warpgroups of 128 experts each, and one that supplies.
__global__ void __launch_bounds__(kMostExperts + kSupplyThreads, 1)
    logits_kernel(const __grid_constant__ Logits p, float* partial /* [chains, rows, experts] */) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& s = *reinterpret_cast<Shared*>(bytes);
  const int experts = p.experts, rows = p.rows, groups = experts / 128, rank = static_cast<int>(cluster_cta_rank());
  const int cluster = blockIdx.x / kCluster, chain = cluster % kRouterChains;
  const int row0 = (cluster / kRouterChains * kCluster + rank) * kTokens;
  const int chain_k = p.k / kRouterChains, steps = chain_k / 64;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], kCluster * 4 * groups);
    }
    mbarrier_init_fence();
  }
  cluster_sync();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  RingPosition<kStages> ring;
  if (group == groups) {
    registers_give<32>();
    if (thread == 0) {
      const int share = experts / kCluster, first = chain * chain_k;
      const auto bring_gate = [&](int step, int stage) {
        mbarrier_arrive_expect(&s.full[stage], (experts + kTokens) * 128);
        box_copy_to_cluster(s.gate[stage] + rank * share * 128, &p.gate, first + 64 * step, rank * share,
                            &s.full[stage], (1 << kCluster) - 1);
      };
      const int ahead = min(kStages, steps);  // while the kernel in front ends
      for (int i = 0; i < ahead; ++i) bring_gate(i, i);
      wait_for_previous();
      for (int step = 0; step < steps; ++step) {
        if (step >= ahead) {
          mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
          bring_gate(step, ring.stage);
        }
        box_copy(s.x[ring.stage], &p.x, first + 64 * step, row0, &s.full[ring.stage]);
        ring.advance();
      }
    }
  } else {
    registers_take<160>();
    float low[64], high[64];  // two blocks of 64 experts x 128 rows
    int previous = -1;
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(&s.full[ring.stage], ring.parity);
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
      if (previous >= 0 && thread % 32 < kCluster) mbarrier_arrive_at(&s.empty[previous], thread % 32);
      previous = ring.stage;
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
  cluster_sync();  // nobody leaves whose memory the other still writes to
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
  const int rows = p.select.rows, experts = p.select.experts;
  Scratch scratch(cuda);
  auto* partial = scratch.get<float>(static_cast<size_t>(kRouterChains) * rows * experts);
  const int tiles = (rows + kTokens - 1) / kTokens, clusters = (tiles + kCluster - 1) / kCluster * kRouterChains;
  launch("router logits", logits_kernel,
         {.grid = dim3(clusters * kCluster),
          .block = dim3(experts + kSupplyThreads),
          .shared = sizeof(Shared),
          .stream = cuda.stream(),
          .early = true,
          .cluster = kCluster},
         Logits{bf16_boxes(p.gate, experts, p.k, p.k, experts / kCluster), bf16_boxes(p.x, rows, p.k, p.k, kTokens),
                rows, experts, p.k},
         partial);
  launch("router selection", select_kernel,
         {.grid = dim3((rows + 3) / 4), .block = dim3(128), .stream = cuda.stream(), .early = true}, p.select, partial);
}

}  // namespace hadal::cuda
