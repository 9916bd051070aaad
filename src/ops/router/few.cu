// Few rows: one launch. A CTA multiplies some experts and some rows over one chain of k, all bytes in flight at once, and sends
// its sums to the CTA that selects for the row (exchange.cuh).
#include "ops/cuda/boxes.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/exchange.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/streamed.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma.cuh"
#include "ops/router/logits.h"

namespace hadal::cuda {
namespace {

constexpr int kWorkers = 256, kThreads = kWorkers + 32;  // a warpgroup multiplies, then all select; one warp supplies

struct FewLogits {
  CUtensorMap gate, x;
  int k;
  RouterSelect select;
};

// Teams of threads have a row each when they select. The gate is operand A, whose 64 rows may be more than Experts: the
// others are whatever lies behind, and their sums are not used.
template <int N, int Experts, int Teams>
struct Few {
  static constexpr int kStageBytes = (Experts + N) * 128, kPad = (64 - Experts) * 128;
  static constexpr int kFit = (216 * 1024 - kPad) / kStageBytes, kStages = kFit < 20 ? kFit : 20;
  struct Shared {
    uint8_t stages[kStages][kStageBytes];  // 64 values of k: experts, then rows, in 128-byte swizzle
    uint8_t pad[kPad + 16];
    uint64_t full[kStages], empty[kStages];
    float score[Teams][kRouterMostExperts], key[Teams][kRouterMostExperts];
  };
};

template <int N, int Experts, int Teams>
__global__ void __launch_bounds__(kThreads, 1)
    few_kernel(const __grid_constant__ FewLogits p, uint64_t* words /* [rows, chains, experts] */) {
  using S = Few<N, Experts, Teams>;
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& s = *reinterpret_cast<typename S::Shared*>(bytes);
  const int experts = p.select.experts, rows = p.select.rows, tiles = experts / Experts;
  const int expert0 = blockIdx.x % tiles * Experts, row0 = blockIdx.x / tiles * N, chain = blockIdx.y;
  const int first = p.k / kRouterChains * chain, steps = p.k / kRouterChains / 64;
  constexpr int kTeam = kWorkers / Teams;
  const int team = threadIdx.x / kTeam, thread = threadIdx.x % kTeam, lane = threadIdx.x % 32;
  RingPosition<S::kStages> ring;
  if (threadIdx.x >= kWorkers) {
    const int ahead = min(S::kStages, steps);  // while the kernel in front ends
    const auto bring_gate = [&](int step, int stage) {
      mbarrier_arrive_expect(&s.full[stage], S::kStageBytes);
      box_copy(s.stages[stage], &p.gate, first + 64 * step, expert0, &s.full[stage]);
    };
    if (lane == 0) {
      for (int i = 0; i < S::kStages; ++i) {
        mbarrier_init(&s.full[i], 1);
        mbarrier_init(&s.empty[i], 4);
      }
      mbarrier_init_fence();
      prefetch_map(&p.x);
      for (int i = 0; i < ahead; ++i) bring_gate(i, i);
    }
    __syncthreads();
    if (lane == 0) {
      wait_for_previous();
      supply_stages<Experts>(s, ring, steps, ahead, &p.x, first, row0, bring_gate);
    }
    return;
  }
  __syncthreads();
  wait_for_previous();  // the words are empty from here on
  if (threadIdx.x < 128) {
    float sum[N / 2];
    multiply_stages<N, Experts>(s, ring, steps, lane, sum);
    const int expert = thread / 32 * 16 + lane / 4;
    uint64_t* to = words + chain * experts + expert0 + expert;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const int row = row0 + i / 4 * 8 + lane % 4 * 2 + i % 2, up = i / 2 % 2 * 8;
      if (row < rows && expert + up < Experts) send(to + int64_t{row} * kRouterChains * experts + up, sum[i], 1);
    }
  }

  // The rows are dealt to the teams. All threads make the scores, the first warp selects.
  const int ctas = gridDim.x * gridDim.y;
  for (int row = team * ctas + blockIdx.y * gridDim.x + blockIdx.x; row < rows; row += Teams * ctas) {
    const float* bias = router_bias(p.select, row);
    for (int e = thread; e < experts; e += kTeam) {
      uint64_t* from = words + int64_t{row} * kRouterChains * experts + e;
      uint64_t word[kRouterChains];
      bool late;
      do {
        late = false;
#pragma unroll
        for (int c = 0; c < kRouterChains; ++c) word[c] = peek(from + c * experts);
#pragma unroll
        for (int c = 0; c < kRouterChains; ++c) late |= !carries(word[c], 1);
      } while (late);
      float logit = 0;
#pragma unroll
      for (int c = 0; c < kRouterChains; ++c) {
        logit += value_of(word[c]);
        from[c * experts] = 0;  // this is the only reader: the next launch finds the word empty
      }
      const float score = router_score(p.select, logit);
      s.score[team][e] = score;
      s.key[team][e] = score + bias[e];
      if (p.select.scores != nullptr) p.select.scores[int64_t{row} * experts + e] = score;
    }
    named_barrier(1 + team, kTeam);
    if (thread < 32) {
      // Not before: the experts' blocks fill every multiprocessor, and the shared expert's, which are asked for beside this
      // kernel, would have to wait for their end.
      let_next_start();
      uint32_t keys[kRouterMostExperts / 32];
#pragma unroll
      for (int i = 0; i < kRouterMostExperts / 32; ++i)
        keys[i] = lane + 32 * i < experts ? ordered(s.key[team][lane + 32 * i]) : 0;
      select_experts(p.select, row, keys, [&](int id) { return s.score[team][id]; });
    }
    if (row + Teams * ctas < rows) named_barrier(1 + team, kTeam);
  }
}

template <int N, int Experts, int Teams>
void launch_few(CudaContext& cuda, const RouterLogits& p) {
  using S = Few<N, Experts, Teams>;
  static_assert(sizeof(typename S::Shared) <= 227 * 1024);
  auto* words = static_cast<uint64_t*>(
      cuda.lasting("router", sizeof(uint64_t) * kRouterFewRows * kRouterChains * kRouterMostExperts));
  launch("router", few_kernel<N, Experts, Teams>,
         {.grid = dim3(p.select.experts / Experts * ((p.select.rows + N - 1) / N), kRouterChains),
          .block = dim3(kThreads),
          .shared = sizeof(typename S::Shared),
          .stream = cuda.stream(),
          .cooperative = true,
          .early = true},
         FewLogits{bf16_boxes(p.gate, p.select.experts, p.k, p.k, Experts), bf16_boxes(p.x, p.select.rows, p.k, p.k, N),
                   p.k, p.select},
         words);
}

}  // namespace

// 96 CTAs for 384 experts, whatever the tile.
bool few_takes(const CudaContext& cuda, const RouterSelect& p) {
  return p.rows <= kRouterFewRows && p.experts / 16 * kRouterChains <= cuda.multiprocessors();
}

void route_few(CudaContext& cuda, const RouterLogits& p) {
  if (p.select.rows <= 8) return launch_few<8, 16, 1>(cuda, p);
  if (p.select.rows <= 32) return launch_few<32, 16, 1>(cuda, p);
  if (p.select.rows <= 64) return launch_few<32, 32, 1>(cuda, p);
  launch_few<32, 64, 2>(cuda, p);
}

}  // namespace hadal::cuda
