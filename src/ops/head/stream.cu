#include "ops/head/stream.h"

#include <algorithm>

#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/wgmma.cuh"

namespace hadal::cuda {
namespace {

constexpr int kChains = 4, kBlock = 64, kBlocks = 3;  // a CTA makes three blocks of 64 outputs at a time
constexpr int kSupplyThreads = 128, kThreads = 128 * kBlocks + kSupplyThreads;
constexpr int kMostRows = 128;

struct Stream {
  const uint16_t *w, *x;
  float* y;
  int rows, n, k;
};

template <int N>
struct Shared {
  static constexpr int kBytes = (kBlock * kBlocks + N) * 128;
  static constexpr int kStages = std::min(8, 220 * 1024 / kBytes);
  uint8_t w[kStages][kBlock * kBlocks * 128];  // 64 values of k of every row, in 128-byte swizzle
  uint8_t x[kStages][N * 128];
  uint64_t full[kStages], empty[kStages];
};

// Warpgroup g makes block g of a piece of at most three blocks, the last one supplies. A CTA has consecutive blocks.
template <int N>
__global__ void __launch_bounds__(kThreads, 1) stream_kernel(const __grid_constant__ Stream p) {
  using S = Shared<N>;
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& s = *reinterpret_cast<S*>(bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(&s.full[i], kSupplyThreads);
      mbarrier_init(&s.empty[i], 4 * kBlocks);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const int64_t blocks = p.n / kBlock;
  const int begin = static_cast<int>(blocks * blockIdx.x / gridDim.x),
            end = static_cast<int>(blocks * (blockIdx.x + 1) / gridDim.x);
  const int steps = p.k / 64, chain = steps / kChains;
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  RingPosition<S::kStages> ring;
  if (group == kBlocks) {
    registers_give<32>();
    wait_for_previous();
    // Eight lanes a row of 128 bytes, 16 rows at a time.
    const int unit = thread % 8, first = thread / 8;
    const uint32_t offset = first * 128 + ((unit ^ (first & 7)) << 4);
    for (int block = begin; block < end; block += kBlocks) {
      const int passes = min(kBlocks, end - block) * (kBlock / 16);
      const uint16_t* w = p.w + (int64_t{block} * kBlock + first) * p.k + 8 * unit;
      const uint16_t* x = p.x + int64_t{first} * p.k + 8 * unit;
      for (int step = 0; step < steps; ++step, w += 64, x += 64) {
        mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
        const uint32_t w_to = smem_address(s.w[ring.stage]) + offset, x_to = smem_address(s.x[ring.stage]) + offset;
#pragma unroll
        for (int i = 0; i < kBlocks * kBlock / 16; ++i)
          if (i < passes) copy16_async(w_to + i * 2048, w + int64_t{16 * i} * p.k);
#pragma unroll
        for (int i = 0; i < (N + 15) / 16; ++i)
          if (first + 16 * i < min(N, p.rows)) copy16_async(x_to + i * 2048, x + int64_t{16 * i} * p.k);
        mbarrier_arrive_after_copies(&s.full[ring.stage]);
        ring.advance();
      }
    }
  } else {
    registers_take<160>();
    const int lane = thread % 32;
    for (int block = begin + group; block - group < end; block += kBlocks) {
      float sum[N / 2], total[N / 2];
#pragma unroll
      for (int i = 0; i < N / 2; ++i) total[i] = 0;
      for (int c = 0; c < kChains; ++c) {
        uint64_t* previous = nullptr;
        for (int step = 0; step < chain; ++step) {
          mbarrier_wait(&s.full[ring.stage], ring.parity);
          fence_async_shared();  // rows came by cp.async; the matrix unit reads them through the other proxy
          const uint64_t a = k_major_descriptor(smem_address(s.w[ring.stage]) + group * kBlock * 128);
          const uint64_t b = k_major_descriptor(smem_address(s.x[ring.stage]));
          wgmma_fence();
#pragma unroll
          for (int j = 0; j < 4; ++j) Wgmma<N>::ss(sum, a + 2 * j, b + 2 * j, j > 0 || step > 0);
          wgmma_commit();
          wgmma_wait<1>();  // the step before is done: its stage is free
          if (previous != nullptr && lane == 0) mbarrier_arrive(previous);
          previous = &s.empty[ring.stage];
          ring.advance();
        }
        wgmma_wait<0>();
        if (lane == 0) mbarrier_arrive(previous);
#pragma unroll
        for (int i = 0; i < N / 2; ++i) total[i] += sum[i];
      }
      if (block >= end) continue;
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
}

template <int N>
void launch_stream(CudaContext& cuda, const Stream& p) {
  static const cudaError_t prepared =
      cudaFuncSetAttribute(stream_kernel<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<N>));
  HADAL_CUDA(prepared);
  launch("head", stream_kernel<N>,
         {.grid = dim3(std::min(cuda.multiprocessors(), p.n / kBlock)),
          .block = dim3(kThreads),
          .shared = sizeof(Shared<N>),
          .stream = cuda.stream(),
          .early = true},
         p);
}

}  // namespace

bool stream_takes(const Weight& w) { return w.format == WeightFormat::bf16 && w.n % kBlock == 0 && w.k % 256 == 0; }

void stream_product(CudaContext& cuda, const Weight& w, const uint16_t* x, int rows, float* y) {
  for (int first = 0; first < rows; first += kMostRows) {
    const Stream p{static_cast<const uint16_t*>(w.data),
                   x + int64_t{first} * w.k,
                   y + int64_t{first} * w.n,
                   std::min(kMostRows, rows - first),
                   w.n,
                   w.k};
    if (p.rows <= 8)
      launch_stream<8>(cuda, p);
    else if (p.rows <= 32)
      launch_stream<32>(cuda, p);
    else if (p.rows <= 64)
      launch_stream<64>(cuda, p);
    else
      launch_stream<128>(cuda, p);
  }
}

}  // namespace hadal::cuda
