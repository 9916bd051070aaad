#include "ops/head/stream.h"

#include <algorithm>

#include "ops/cuda/boxes.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma.cuh"

namespace hadal::cuda {
namespace {

constexpr int kChains = 4, kBlock = 64, kBlocks = 3;  // a CTA makes three blocks of 64 outputs at a time
constexpr int kThreads = 128 * (kBlocks + 1);
constexpr int kMostRows = 128;

struct Stream {
  CUtensorMap w, x;
  float* y;
  int rows, n, k;
};

// The CTAs of a cluster work on different outputs in step and give each other their share of the rows of x: with 128 rows,
// rows would otherwise be 40% of what L2 delivers.
template <int N, int Cluster>
struct Shared {
  static constexpr int kBytes = (kBlock * kBlocks + N) * 128;
  static constexpr int kStages = std::min(8, 220 * 1024 / kBytes);
  uint8_t w[kStages][kBlock * kBlocks * 128];  // 64 values of k of every row, in 128-byte swizzle
  uint8_t x[kStages][N * 128];
  uint64_t full[kStages], empty[kStages];
};

// A cluster has consecutive blocks, and each of its CTAs up to three of them in a pass through k. A pass that is not full
// is the first: as the last one it would leave the memory idle.
template <int Cluster>
struct Passes {
  static constexpr int kFull = kBlocks * Cluster;
  int begin, end, rank;
  __device__ __forceinline__ explicit Passes(int n) {
    const int64_t blocks = n / kBlock;
    const int cluster = blockIdx.x / Cluster, clusters = gridDim.x / Cluster;
    begin = static_cast<int>(blocks * cluster / clusters);
    end = static_cast<int>(blocks * (cluster + 1) / clusters);
    rank = Cluster > 1 ? static_cast<int>(cluster_cta_rank()) : 0;
  }
  __device__ __forceinline__ int count() const { return (end - begin + kFull - 1) / kFull; }
  __device__ __forceinline__ int last(int pass) const { return end - (count() - 1 - pass) * kFull; }
  // The first of this CTA's blocks, and how many it has.
  __device__ __forceinline__ int first(int pass) const { return max(last(pass) - kFull, begin) + rank * kBlocks; }
  __device__ __forceinline__ int blocks(int pass) const { return max(min(kBlocks, last(pass) - first(pass)), 0); }
};

template <int N, int Cluster>
__device__ __forceinline__ void supply(Shared<N, Cluster>& s, const Stream& p) {
  const Passes<Cluster> passes(p.n);
  constexpr int kShare = N / Cluster;
  RingPosition<Shared<N, Cluster>::kStages> ring;
  for (int pass = 0; pass < passes.count(); ++pass) {
    const int first = passes.first(pass), blocks = passes.blocks(pass);
    for (int column = 0; column < p.k; column += 64) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &s.full[ring.stage];
      mbarrier_arrive_expect(full, blocks * kBlock * 128 + N * 128);
      for (int i = 0; i < blocks; ++i)
        box_copy(s.w[ring.stage] + i * kBlock * 128, &p.w, column, (first + i) * kBlock, full);
      if constexpr (Cluster == 1)
        box_copy(s.x[ring.stage], &p.x, column, 0, full);
      else
        box_copy_to_cluster(s.x[ring.stage] + passes.rank * kShare * 128, &p.x, column, passes.rank * kShare, full,
                            (1 << Cluster) - 1);
      ring.advance();
    }
  }
}

// Warpgroup g makes block g of a pass.
template <int N, int Cluster>
__device__ __forceinline__ void multiply(Shared<N, Cluster>& s, const Stream& p, int group, int thread) {
  const Passes<Cluster> passes(p.n);
  const int lane = thread % 32, chain = p.k / 64 / kChains;
  RingPosition<Shared<N, Cluster>::kStages> ring;
  const auto release = [&](int stage) __attribute__((always_inline)) {
    if constexpr (Cluster == 1) {
      if (lane == 0) mbarrier_arrive(&s.empty[stage]);
    } else {
      if (lane < Cluster) mbarrier_arrive_at(&s.empty[stage], lane);
    }
  };
  for (int pass = 0; pass < passes.count(); ++pass) {
    const int block = passes.first(pass) + group;
    const bool mine = group < passes.blocks(pass);
    float sum[N / 2], total[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] = 0;
    for (int c = 0; c < kChains; ++c) {
      int previous = -1;
      for (int step = 0; step < chain; ++step) {
        mbarrier_wait(&s.full[ring.stage], ring.parity);
        const uint64_t a = k_major_descriptor(smem_address(s.w[ring.stage]) + group * kBlock * 128);
        const uint64_t b = k_major_descriptor(smem_address(s.x[ring.stage]));
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) Wgmma<N>::ss(sum, a + 2 * j, b + 2 * j, j > 0 || step > 0);
        wgmma_commit();
        wgmma_wait<1>();  // the step before is done: its stage is free
        if (previous >= 0) release(previous);
        previous = ring.stage;
        ring.advance();
      }
      wgmma_wait<0>();
      release(previous);
#pragma unroll
      for (int i = 0; i < N / 2; ++i) total[i] += sum[i];
    }
    if (!mine) continue;
    float* to = p.y + int64_t{block} * kBlock + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * j + 2 * (lane % 4) + e;
        if (row >= p.rows) continue;
        __stcs(to + int64_t{row} * p.n, total[4 * j + e]);
        __stcs(to + int64_t{row} * p.n + 8, total[4 * j + 2 + e]);
      }
  }
}

template <int N, int Cluster>
__global__ void __launch_bounds__(kThreads, 1) stream_kernel(const __grid_constant__ Stream p) {
  using S = Shared<N, Cluster>;
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& s = *reinterpret_cast<S*>(bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], 4 * kBlocks * Cluster);
    }
    mbarrier_init_fence();
  }
  if constexpr (Cluster > 1)
    cluster_sync();
  else
    __syncthreads();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group == kBlocks) {
    registers_give<32>();
    wait_for_previous();
    if (thread == 0) supply(s, p);
  } else {
    registers_take<160>();
    multiply(s, p, group, thread);
  }
  if constexpr (Cluster > 1) cluster_sync();  // nobody leaves whose memory the others still write to
}

template <int N, int Cluster>
void launch_stream(CudaContext& cuda, Stream& p, const uint16_t* x) {
  p.x = bf16_boxes(x, p.rows, p.k, p.k, N / Cluster);
  const int most = (p.n / kBlock + Cluster - 1) / Cluster;
  launch("head", stream_kernel<N, Cluster>,
         {.grid = dim3(std::min(cuda.multiprocessors() / Cluster, most) * Cluster),
          .block = dim3(kThreads),
          .shared = sizeof(Shared<N, Cluster>),
          .stream = cuda.stream(),
          .early = true,
          .cluster = Cluster},
         p);
}

}  // namespace

bool stream_takes(const Weight& w) { return w.format == WeightFormat::bf16 && w.n % kBlock == 0 && w.k % 256 == 0; }

void stream_product(CudaContext& cuda, const Weight& w, const uint16_t* x, int rows, float* y) {
  Stream p{};
  p.w = bf16_boxes(static_cast<const uint16_t*>(w.data), w.n, w.k, w.k, kBlock);
  p.n = w.n;
  p.k = w.k;
  for (int first = 0; first < rows; first += kMostRows) {
    p.y = y + int64_t{first} * w.n;
    p.rows = std::min(kMostRows, rows - first);
    const uint16_t* from = x + int64_t{first} * w.k;
    if (p.rows <= 8)
      launch_stream<8, 1>(cuda, p, from);
    else if (p.rows <= 32)
      launch_stream<32, 1>(cuda, p, from);
    else if (p.rows <= 64)
      launch_stream<64, 2>(cuda, p, from);
    else
      launch_stream<128, 2>(cuda, p, from);
  }
}

}  // namespace hadal::cuda
