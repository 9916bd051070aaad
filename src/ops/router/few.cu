// Few rows: one launch. A CTA reads 16 rows of the gate over one chain of k, all bytes in flight at once, and sends its sums
// to the CTA that selects for the row (exchange.cuh).
#include <algorithm>

#include "ops/cuda/exchange.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"
#include "ops/router/logits.h"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 8, kTokens = 8 * kWarps, kExperts = 16;
constexpr int kPad = 16;  // bytes behind a row in shared memory, so that eight rows meet all banks

__device__ __forceinline__ void load_matrix4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__global__ void __launch_bounds__(32 * kWarps, 1)
    few_kernel(const __grid_constant__ RouterLogits p, uint64_t* words /* [rows, chains, experts] */) {
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ float score[kRouterMostExperts], key[kRouterMostExperts];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int chain_k = p.k / kRouterChains, row_bytes = 2 * chain_k + kPad;
  const int expert = blockIdx.x * kExperts, chain = blockIdx.y, experts = p.select.experts, rows = p.select.rows;
  uint8_t* const gate = shared;
  uint8_t* const x = shared + kExperts * row_bytes;

  // Sixteen threads a row.
  const auto load = [&](uint8_t* to, const uint16_t* from, int count) {
    const int unit = threadIdx.x % 16;
    for (int row = threadIdx.x / 16; row < count; row += 2 * kWarps) {
      const uint16_t* source = from + (int64_t{row} * p.k + chain * chain_k + 8 * unit);
      const uint32_t target = smem_address(to + row * row_bytes + 16 * unit);
#pragma unroll 10
      for (int k = 8 * unit; k < chain_k; k += 128) copy16_async(target + 2 * (k - 8 * unit), source + (k - 8 * unit));
    }
    copy_async_commit();
  };
  load(gate, p.gate + int64_t{expert} * p.k, kExperts);
  wait_for_previous();
  let_next_start();

  // Lane l gives the address of row l % 8 of matrix l / 8: gate rows 0-7 and 8-15 at k 0-7, then both at k 8-15; rows of x
  // at k 0-7, 8-15, 16-23, 24-31.
  const uint32_t a_at = smem_address(gate + (lane % 16) * row_bytes + lane / 16 * 16);
  const uint32_t b_at = smem_address(x + (8 * warp + lane % 8) * row_bytes + lane / 8 * 16);
  for (int first = 0; first < rows; first += kTokens) {
    if (first > 0) __syncthreads();
    load(x, p.x + int64_t{first} * p.k, min(kTokens, rows - first));
    copy_async_wait<0>();
    __syncthreads();
    if (first + 8 * warp >= rows) continue;
    float d[4] = {};
#pragma unroll 8
    for (int k = 0; k < chain_k; k += 32) {
      uint32_t a[4], c[4], b[4];
      load_matrix4(a, a_at + 2 * k);
      load_matrix4(c, a_at + 2 * k + 32);
      load_matrix4(b, b_at + 2 * k);
      mma_bf16(d, a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_bf16(d, c[0], c[1], c[2], c[3], b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first + 8 * warp + 2 * t + i % 2, e = expert + g + 8 * (i / 2);
      if (row < rows) send(words + (int64_t{row} * kRouterChains + chain) * experts + e, d[i], 1);
    }
  }

  // The rows are dealt to the CTAs. All threads make the scores, the first warp selects.
  for (int row = blockIdx.y * gridDim.x + blockIdx.x; row < rows; row += gridDim.x * gridDim.y) {
    const float* bias = router_bias(p.select, row);
    for (int e = threadIdx.x; e < experts; e += 32 * kWarps) {
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
      score[e] = router_score(p.select, logit);
      key[e] = score[e] + bias[e];
      if (p.select.scores != nullptr) p.select.scores[int64_t{row} * experts + e] = score[e];
    }
    __syncthreads();
    if (warp == 0) {
      uint32_t keys[kRouterMostExperts / 32];
#pragma unroll
      for (int i = 0; i < kRouterMostExperts / 32; ++i)
        keys[i] = lane + 32 * i < experts ? ordered(key[lane + 32 * i]) : 0;
      select_experts(p.select, row, keys, [&](int id) { return score[id]; });
    }
    __syncthreads();
  }
}

}  // namespace

bool few_takes(const CudaContext& cuda, const RouterSelect& p) {
  return p.rows <= kRouterFewRows && p.experts / kExperts * kRouterChains <= cuda.multiprocessors();
}

void route_few(CudaContext& cuda, const RouterLogits& p) {
  const int row_bytes = 2 * p.k / kRouterChains + kPad;
  const int tokens = std::min(kTokens, (p.select.rows + 7) / 8 * 8);
  const size_t shared = static_cast<size_t>(kExperts + tokens) * row_bytes;
  auto* words = static_cast<uint64_t*>(
      cuda.lasting("router", sizeof(uint64_t) * kRouterFewRows * kRouterChains * kRouterMostExperts));
  launch("router", few_kernel,
         {.grid = dim3(p.select.experts / kExperts, kRouterChains),
          .block = dim3(32 * kWarps),
          .shared = shared,
          .stream = cuda.stream(),
          .cooperative = true,
          .early = true},
         p, words);
}

}  // namespace hadal::cuda
