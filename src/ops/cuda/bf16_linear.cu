#include "ops/cuda/bf16_linear.h"

#include "ops/cuda/boxes.cuh"
#include "ops/cuda/codec.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/streamed.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma.cuh"

namespace hadal::cuda {
namespace {

constexpr int kChains = 4, kStep = 64;  // values of k in a row of a box

struct Maps {
  CUtensorMap x, w[2];
  int rows, n, k, outputs;  // outputs of all weights
  float* y;
  uint16_t* y_bf16;
};

// ---- few rows: Outputs x N rows over one chain, the CTAs of a cluster for the chains ------------------------------------
// Weights are operand A, whose 64 rows may be more than Outputs: the others are whatever lies behind, and are not stored.
// Two CTAs on a multiprocessor: 32 clusters of four would not find their places otherwise.
template <int N, int Outputs>
struct Few {
  static constexpr int kThreads = 128 + 32;
  static constexpr int kReceived = (kChains - 1) * 64 * N * static_cast<int>(sizeof(float)),
                       kPad = (64 - Outputs) * 128;
  static constexpr bool kOverlaid = N > 32;  // sums are received where the stages were
  static constexpr int kStageBytes = (Outputs + N) * 128;
  static constexpr int kFit = (110 * 1024 - (kOverlaid ? 0 : kReceived) - kPad) / kStageBytes;
  static constexpr int kStages = kFit < 20 ? kFit : 20;
  struct Shared {
    uint8_t stages[kStages][kStageBytes];  // weights, then rows, in 128-byte swizzle
    uint8_t pad[kPad + 16];
    uint8_t apart[kOverlaid ? 16 : kReceived];
    uint64_t full[kStages], empty[kStages];
  };
  static_assert(!kOverlaid || kReceived <= kStages * kStageBytes);
};

template <int N, int Outputs>
__global__ void __launch_bounds__(Few<N, Outputs>::kThreads, 2) few_kernel(const __grid_constant__ Maps p) {
  using S = Few<N, Outputs>;
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& s = *reinterpret_cast<typename S::Shared*>(bytes);
  const int chain = static_cast<int>(cluster_cta_rank()), tile = blockIdx.x / kChains, tiles = p.outputs / Outputs;
  const int output0 = tile % tiles * Outputs, row0 = tile / tiles * N;
  const int first = p.k / kChains * chain, steps = p.k / kChains / kStep;
  auto* const received = reinterpret_cast<float*>(S::kOverlaid ? s.stages[0] : s.apart);  // [chain - 1][N / 2][128]
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int ahead = min(S::kStages, steps);  // while the kernel in front ends
  const CUtensorMap* w = &p.w[output0 / p.n];
  const auto bring_weights = [&](int step, int stage) {
    mbarrier_arrive_expect(&s.full[stage], S::kStageBytes);
    box_copy(s.stages[stage], w, first + kStep * step, output0 % p.n, &s.full[stage]);
  };
  if (thread == 128) {
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], 4);
    }
    mbarrier_init_fence();
    prefetch_map(&p.x);
    for (int i = 0; i < ahead; ++i) bring_weights(i, i);
  }
  __syncwarp();
  cluster_sync();
  let_next_start();
  RingPosition<S::kStages> ring;
  float sum[N / 2];
  if (warp == 4) {
    if (lane == 0) {
      wait_for_previous();
      supply_stages<Outputs>(s, ring, steps, ahead, &p.x, first, row0, bring_weights);
    }
    __syncwarp();
  } else {
    multiply_stages<N, Outputs>(s, ring, steps, lane, sum);
  }
  if constexpr (S::kOverlaid) cluster_sync();  // all products are done
  if (chain > 0 && warp < 4) {
    const uint32_t to = cluster_address(smem_address(received + (chain - 1) * 64 * N + thread), 0);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) store_cluster(to + sizeof(float) * 128 * i, sum[i]);
  }
  cluster_sync();
  if (chain > 0 || warp == 4) return;
  const int output = warp * 16 + lane / 4;
  const auto store = [&](int64_t at, float v) {
    if (p.y_bf16 != nullptr)
      p.y_bf16[at] = to_bf16(v);
    else
      p.y[at] = v;
  };
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const int row = row0 + i / 4 * 8 + lane % 4 * 2 + i % 2, up = i / 2 % 2 * 8;
    float total = 0.0f + sum[i];
#pragma unroll
    for (int c = 0; c < kChains - 1; ++c) total += received[c * 64 * N + 128 * i + thread];
    if (row < p.rows && output + up < Outputs) store(int64_t{row} * p.outputs + output0 + output + up, total);
  }
}

// ---- many rows: 128 rows x Outputs over all chains -----------------------------------------------------------------
// Two CTAs of a cluster have different rows and bring each other half of the weights, most of what is read from L2. Registers
// hold sums of 256 outputs and half of another set. So the totals of the chains before are kept in three places, by groups of
// eight outputs: registers, shared memory, and y itself.
constexpr int kRows = 128, kStages = 4, kCluster = 2, kGroups = 2;

template <int Outputs>
struct Many {
  static constexpr int kEights = Outputs / 8, kHeld = 16, kShared = kEights > kHeld ? 8 : 0;
  static constexpr int kWritten = kEights - kHeld - kShared;
  struct Shared {
    uint8_t w[kStages][Outputs * 128];
    uint8_t x[kStages][kRows * 128];
    float4 totals[kShared > 0 ? kShared : 1][128 * kGroups];
    uint64_t full[kStages], empty[kStages];
  };
};

template <int Outputs>
__global__ void __launch_bounds__(128 * (kGroups + 1), 1) many_kernel(const __grid_constant__ Maps p) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  using S = Many<Outputs>;
  auto& s = *reinterpret_cast<typename S::Shared*>(bytes);
  const int rank = static_cast<int>(cluster_cta_rank()), cluster = blockIdx.x / kCluster, tiles = p.outputs / Outputs;
  const int output0 = cluster % tiles * Outputs, row0 = (cluster / tiles * kCluster + rank) * kRows;
  const int chain_steps = p.k / kChains / kStep;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], kCluster * 4 * kGroups);
    }
    mbarrier_init_fence();
  }
  cluster_sync();
  let_next_start();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  RingPosition<kStages> ring;
  if (group == kGroups) {
    registers_give<24>();
    if (thread == 0) {
      const CUtensorMap* w = &p.w[output0 / p.n];
      constexpr int kShare = Outputs / kCluster;
      const int output = output0 % p.n + rank * kShare, steps = kChains * chain_steps;
      const auto bring_weights = [&](int step, int stage) {
        mbarrier_arrive_expect(&s.full[stage], (Outputs + kRows) * 128);
        box_copy_to_cluster(s.w[stage] + rank * kShare * 128, w, kStep * step, output, &s.full[stage],
                            (1 << kCluster) - 1);
      };
      const int ahead = min(kStages, steps);
      for (int i = 0; i < ahead; ++i) bring_weights(i, i);
      wait_for_previous();
      for (int step = 0; step < steps; ++step) {
        if (step >= ahead) {
          mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
          bring_weights(step, ring.stage);
        }
        box_copy(s.x[ring.stage], &p.x, kStep * step, row0, &s.full[ring.stage]);
        ring.advance();
      }
    }
  } else {
    registers_take<240>();
    const int lane = thread % 32, row = row0 + group * 64 + thread / 32 * 16 + lane / 4;
    float* const upper =
        p.y + int64_t{row} * p.outputs + output0 + lane % 4 * 2;  // this thread's pairs, and of row + 8
    float* const lower = upper + int64_t{8} * p.outputs;
    const bool has_upper = row < p.rows, has_lower = row + 8 < p.rows;
    float sum[Outputs / 2], held[4 * S::kHeld] = {};
    int previous = -1;
#pragma unroll 1
    for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll 1
      for (int step = 0; step < chain_steps; ++step) {
        mbarrier_wait(&s.full[ring.stage], ring.parity);
        const uint64_t a = k_major_descriptor(smem_address(s.x[ring.stage]) + group * 64 * 128);
        const uint64_t b = k_major_descriptor(smem_address(s.w[ring.stage]));
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) Wgmma<Outputs>::ss(sum, a + 2 * j, b + 2 * j, j > 0 || step > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (previous >= 0 && lane < kCluster) mbarrier_arrive_at(&s.empty[previous], lane);
        previous = ring.stage;
        ring.advance();
      }
      wgmma_wait<0>();
      if (chain + 1 < kChains) {  // the stages that are full wait no longer than this
        if (lane < kCluster) mbarrier_arrive_at(&s.empty[previous], lane);
        previous = -1;
      }
      const bool last = chain + 1 == kChains;
      const auto put = [&](int j, float4 v) {
        if (has_upper) *reinterpret_cast<float2*>(upper + 8 * j) = make_float2(v.x, v.y);
        if (has_lower) *reinterpret_cast<float2*>(lower + 8 * j) = make_float2(v.z, v.w);
      };
      float2 above[S::kWritten + 1] = {}, below[S::kWritten + 1] = {};
      if (chain > 0)
#pragma unroll
        for (int i = 0; i < S::kWritten; ++i) {
          if (has_upper) above[i] = *reinterpret_cast<const float2*>(upper + 8 * (S::kHeld + S::kShared + i));
          if (has_lower) below[i] = *reinterpret_cast<const float2*>(lower + 8 * (S::kHeld + S::kShared + i));
        }
#pragma unroll
      for (int j = 0; j < S::kHeld; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) held[4 * j + e] += sum[4 * j + e];
        if (last) put(j, make_float4(held[4 * j], held[4 * j + 1], held[4 * j + 2], held[4 * j + 3]));
      }
#pragma unroll
      for (int i = 0; i < S::kShared; ++i) {
        const float* own = sum + 4 * (S::kHeld + i);
        float4& place = s.totals[i][group * 128 + thread];
        float4 v = chain > 0 ? place : make_float4(0, 0, 0, 0);
        v = make_float4(v.x + own[0], v.y + own[1], v.z + own[2], v.w + own[3]);
        if (last)
          put(S::kHeld + i, v);
        else
          place = v;
      }
#pragma unroll
      for (int i = 0; i < S::kWritten; ++i) {
        const float* own = sum + 4 * (S::kHeld + S::kShared + i);
        put(S::kHeld + S::kShared + i,
            make_float4(above[i].x + own[0], above[i].y + own[1], below[i].x + own[2], below[i].y + own[3]));
      }
    }
  }
  cluster_sync();  // nobody leaves whose memory the other still writes to
}

template <int N, int Outputs>
void launch_few(CudaContext& cuda, const Bf16Linear& p, Maps maps) {
  using S = Few<N, Outputs>;
  static_assert(sizeof(typename S::Shared) <= 227 * 1024);
  maps.x = bf16_boxes(p.x, p.rows, p.k, p.k, N);
  for (int i = 0; i < 2; ++i)
    if (p.w[i] != nullptr) maps.w[i] = bf16_boxes(p.w[i], p.n, p.k, p.k, Outputs);
  const int tiles = maps.outputs / Outputs * ((p.rows + N - 1) / N);
  launch("bf16_linear", few_kernel<N, Outputs>,
         {.grid = dim3(tiles * kChains),
          .block = dim3(S::kThreads),
          .shared = sizeof(typename S::Shared),
          .stream = cuda.stream(),
          .early = true,
          .cluster = kChains},
         maps);
}

template <int Outputs>
void launch_many(CudaContext& cuda, const Bf16Linear& p, Maps maps) {
  using S = Many<Outputs>;
  static_assert(sizeof(typename S::Shared) <= 227 * 1024);
  maps.x = bf16_boxes(p.x, p.rows, p.k, p.k, kRows);
  for (int i = 0; i < 2; ++i)
    if (p.w[i] != nullptr) maps.w[i] = bf16_boxes(p.w[i], p.n, p.k, p.k, Outputs / kCluster);
  const int tiles = (p.rows + kRows - 1) / kRows,
            clusters = (tiles + kCluster - 1) / kCluster * (maps.outputs / Outputs);
  launch("bf16_linear", many_kernel<Outputs>,
         {.grid = dim3(clusters * kCluster),
          .block = dim3(128 * (kGroups + 1)),
          .shared = sizeof(typename S::Shared),
          .stream = cuda.stream(),
          .early = true,
          .cluster = kCluster},
         maps);
}

}  // namespace

bool bf16_linear_takes(const CudaContext& cuda, const Weight& w) {
  return !cuda.portable() && w.format == WeightFormat::bf16 && w.n % 32 == 0 && w.k % (kChains * kStep) == 0;
}

void bf16_linear(CudaContext& cuda, const Bf16Linear& p) {
  const int outputs = p.w[1] != nullptr ? 2 * p.n : p.n;
  const Maps maps{{}, {}, p.rows, p.n, p.k, outputs, p.y, p.y_bf16};
  HADAL_CUDA_CHECK(p.y != nullptr ? p.y_bf16 == nullptr : p.n % 128 != 0);
  HADAL_CUDA_CHECK(((reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.w[0]) |
                     reinterpret_cast<uintptr_t>(p.w[1]) | reinterpret_cast<uintptr_t>(p.y)) %
                    16) == 0);
  if (p.rows <= 8) return launch_few<8, 32>(cuda, p, maps);
  if (p.rows <= 32 || (p.n % 64 != 0 && p.rows <= 1024)) return launch_few<32, 32>(cuda, p, maps);
  if (p.n % 64 != 0) return launch_few<128, 32>(cuda, p, maps);
  if (p.rows <= 128) return launch_few<64, 64>(cuda, p, maps);
  if (p.rows <= 1024 || p.n % 128 != 0) return launch_few<128, 64>(cuda, p, maps);
  // Tiles of 256 outputs read less, where they are enough for the card.
  if (p.n % 256 == 0 && outputs >= 1024) return launch_many<256>(cuda, p, maps);
  launch_many<128>(cuda, p, maps);
}

}  // namespace hadal::cuda
