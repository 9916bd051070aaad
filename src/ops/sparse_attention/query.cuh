// A query on its way into shared memory, for the kernels of one multiprocessor a query: eight slabs of 64 rows and channels.
#pragma once

#include "ops/cuda/hopper.cuh"
#include "ops/cuda/rotate.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/sparse_attention/kernels.h"
#include "ops/sparse_attention/tile.cuh"

namespace hadal::cuda {

// By 256 threads. Each arrives at `full` when its copies have landed, and arrives once more itself after this: the rotated
// channels, which are the last slab, pass through its registers where the queries come as they are (args.q_angles).
__device__ __forceinline__ void load_query(uint8_t* slabs, uint64_t* full, const AttentionProblem& p, int query,
                                           int thread) {
  constexpr int kThreads = 256, kChunks = kHeadDim / 8, kLast = kChunks - kRotatedDim / 8;
  const auto* from = static_cast<const uint8_t*>(p.args.q.data) + static_cast<int64_t>(query) * kHeads * kHeadDim * 2;
  const uint32_t to = smem_address(slabs);
  const bool rotate = p.args.q_angles.data != nullptr;
  asm volatile("" : "+r"(thread));  // addresses are not kept for all queries
  const auto place = [&](int head, int chunk) {
    return (chunk >> 3) * kSlabBytes + head * 128 + (((chunk & 7) ^ (head & 7)) << 4);
  };
  if (!rotate || (thread & 63) < kLast) {
#pragma unroll 4
    for (int i = thread; i < kHeads * kChunks; i += kThreads)
      copy16_async(to + place(i / kChunks, i % kChunks), from + i * 16);
  }
  if (rotate) {
    const int chunk = kLast + (thread & 7);
    const auto* angles =
        static_cast<const float2*>(p.args.q_angles.data) + query * (kRotatedDim / 2) + 4 * (thread & 7);
#pragma unroll 1
    for (int head = thread >> 3; head < kHeads; head += kThreads / 8)
      *reinterpret_cast<uint4*>(slabs + place(head, chunk)) =
          rotate_pairs(*reinterpret_cast<const uint4*>(from + (head * kChunks + chunk) * 16), angles);
  }
  mbarrier_arrive_after_copies(full);
}

}  // namespace hadal::cuda
