// Sparse attention on the matrix unit: 64 heads of 512 channels, one query at a time on a multiprocessor, persistent.
//
// The output of a query, 64 x 512 in fp32, is half of the register file, so two warpgroups own 256 columns each. Keys come
// in pairs of tiles of 64: warpgroup w computes the scores of tile w of a pair, both agree on the running maximum through
// shared memory, hand each other their probabilities, and add both tiles' values to their own columns.
// Two more warpgroups read packed rows (528 or 288 bytes instead of 1,024) a step ahead into registers and expand them into
// the two tiles, half a row band at a time, as soon as its reader is done: one tile serves as key and as value.
//
// Tile bounds and the order of sums depend on the place in the query's list only.
// The arrangement "two warpgroups split the output columns" is FlashMLA's (deepseek-ai/FlashMLA csrc/sm90/prefill/sparse).
#include "ops/cuda/errors.h"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/sparse_attention/expand.cuh"
#include "ops/sparse_attention/kernels.h"
#include "ops/sparse_attention/keys.cuh"

namespace hadal::cuda {
namespace {

constexpr int kHeads = 64;
constexpr int kThreads = 512;
constexpr int kProducers = 256;
constexpr int kMostKeys = 768;  // a multiple of two tiles
// 256 columns as two products of 128: with four warpgroups ptxas has 128 registers at entry and refuses wider ones.
constexpr uint64_t kTwoSlabs = 2 * kSlabBytes / 16;
constexpr float kLog2e = 1.4426950408889634f;

struct Shared {
  uint8_t query[8 * kSlabBytes];
  uint8_t tile[2][8 * kSlabBytes];
  uint8_t probability[2][kSlabBytes];  // [head][key] of a tile
  float top[2][kHeads];                // largest score of a tile
  float total[2][kHeads];
  uint64_t row[2][kMostKeys];  // of two queries in turn; only the producers read it
  float2 rotation[4][32];      // of four in turn: the consumers may be two queries behind
  int count[4];
  uint64_t query_full, query_empty;
  uint64_t full[2][2], empty[2][2];  // [tile][half]
};

// ---- producers: warpgroups 2 and 3 -------------------------------------------------------------------------------------
// Stands for keys past the end of a list: expands to zeros. Whatever a tile held before might be NaN, and 0 times NaN too.
__device__ __align__(16) const uint8_t kZeroEntry[kHeadDim / 2 + kHeadDim / 16] = {};

// Where every key of a query lies, as an address with the kind in the top bit: written once a query, so that the threads
// that expand rows hold no list in registers.
// Keeps what depends on x from being computed once and held in registers for the whole kernel.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ __forceinline__ void list_rows(Shared& s, const AttentionProblem& p, int query, int turn, int thread) {
  thread = opaque(thread);
  const KeyList keys = key_list(p.args, query, p.in, p.out, p.segments, p.has_entries ? &p.entries : nullptr, &p.selection);
  const int window = keys.window_count(), count = keys.count();
#pragma unroll 1
  for (int t = thread; t < kMostKeys; t += kProducers) {
    uint64_t row = reinterpret_cast<uint64_t>(kZeroEntry) | kIsEntry;
    if (t < window)
      row = reinterpret_cast<uint64_t>(window_row(p.args, keys, t));
    else if (t < count)
      row = reinterpret_cast<uint64_t>(p.entries.rows + static_cast<int64_t>(keys.entries[t - window]) * p.entries.row_bytes) | kIsEntry;
    s.row[turn & 1][t] = row;
  }
  if (thread < p.args.rope.dim / 2) s.rotation[turn][thread] = __ldg(&p.rotations[query * (p.args.rope.dim / 2) + thread]);
  if (thread == 0) s.count[turn] = count;
}

__device__ __forceinline__ PackedPart load_key(const Shared& s, int turn, int t, int half, int side) {
  return load_part(s.row[turn & 1][t], half, side);
}

__device__ __forceinline__ void load_query(Shared& s, const AttentionProblem& p, int query, int thread) {
  const uint8_t* from = static_cast<const uint8_t*>(p.args.q.data) + static_cast<int64_t>(query) * kHeads * kHeadDim * 2;
  const uint32_t to = smem_address(s.query);
  thread = opaque(thread);
#pragma unroll 4
  for (int i = thread; i < kHeads * kHeadDim / 8; i += kProducers) {
    const int head = i >> 6, chunk = i & 63;
    copy16_async(to + (chunk >> 3) * kSlabBytes + head * 128 + (((chunk & 7) ^ (head & 7)) << 4), from + i * 16);
  }
  mbarrier_arrive_after_copies(&s.query_full);
}

__device__ __forceinline__ void produce(Shared& s, const AttentionProblem& p, int thread) {
  const int r = thread >> 2, side = thread & 3;
  uint32_t pair_parity = 1, query_parity = 1;
  PackedPart waiting;
  bool have = false;
  const auto flush = [&](int tile, int half) {
    mbarrier_wait(&s.empty[tile][half], pair_parity);
    store_part(s.tile[tile], r, waiting, half, side);
    fence_async_shared();
    mbarrier_arrive(&s.full[tile][half]);
  };
  int turn = 0;
  list_rows(s, p, blockIdx.x, 0, thread);
  named_barrier(3, kProducers);
  for (int query = blockIdx.x; query < p.out.rows; query += gridDim.x, turn = (turn + 1) & 3) {
    const int pairs = max((s.count[turn] + 2 * kTileKeys - 1) / (2 * kTileKeys), 1);
    for (int pair = 0; pair < pairs; ++pair) {
      const int t0 = pair * 2 * kTileKeys + r, t1 = t0 + kTileKeys;
      // In the order in which the consumers let halves go. What is read here is stored one step later.
      PackedPart fresh = load_key(s, turn, t0, 0, side);
      if (have) {
        flush(0, 1);
        pair_parity ^= 1;
      }
      if (pair == 0) {
        mbarrier_wait(&s.query_empty, query_parity);
        query_parity ^= 1;
        load_query(s, p, query, thread);
      }
      waiting = fresh;
      fresh = load_key(s, turn, t1, 1, side);
      flush(0, 0);
      waiting = fresh;
      fresh = load_key(s, turn, t1, 0, side);
      flush(1, 1);
      waiting = fresh;
      fresh = load_key(s, turn, t0, 1, side);
      flush(1, 0);
      waiting = fresh;
      have = true;
      if (pair == pairs - 1 && query + gridDim.x < p.out.rows) list_rows(s, p, query + gridDim.x, (turn + 1) & 3, thread);
    }
    named_barrier(3, kProducers);
  }
  if (have) flush(0, 1);
}

// ---- consumers: warpgroups 0 and 1 -------------------------------------------------------------------------------
__device__ __forceinline__ float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Thread's rows are warp * 16 + lane / 4 and 8 more; its columns of an 8-wide block are 2 (lane % 4) and the next.
__device__ __forceinline__ void consume(Shared& s, const AttentionProblem& p, int group, int thread) {
  const int warp = thread >> 5, lane = thread & 31;
  const int head = warp * 16 + (lane >> 2);
  const float scale = p.args.scale * kLog2e / kStoredScale;  // scores in powers of two
  const uint64_t query = k_major_descriptor(smem_address(s.query));
  const uint64_t keys = k_major_descriptor(smem_address(s.tile[group]));
  const uint64_t own_values = mn_major_descriptor(smem_address(s.tile[group]) + group * 4 * kSlabBytes, kSlabBytes);
  const uint64_t other_values = mn_major_descriptor(smem_address(s.tile[group ^ 1]) + group * 4 * kSlabBytes, kSlabBytes);
  const uint64_t other_probability = k_major_descriptor(smem_address(s.probability[group ^ 1]));
  uint32_t parity = 0, query_parity = 0;
  int turn = 0;
  for (int q = blockIdx.x; q < p.out.rows; q += gridDim.x, turn = (turn + 1) & 3) {
    float sum[128], top[2] = {-1e30f, -1e30f}, total[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 128; ++i) sum[i] = 0;
    mbarrier_wait(&s.query_full, query_parity);
    query_parity ^= 1;
    int pair = 0, count, pairs;
    do {
      float score[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) score[i] = 0;
      mbarrier_wait(&s.full[group][0], parity);
      mbarrier_wait(&s.full[group][1], parity);
      count = s.count[turn];  // written before the first half was announced
      pairs = max((count + 2 * kTileKeys - 1) / (2 * kTileKeys), 1);
      fence_async_shared();  // the query came by cp.async
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k)
        Wgmma<64>::ss(score, query + ((k >> 2) * kSlabBytes + (k & 3) * 32) / 16, keys + ((k >> 2) * kSlabBytes + (k & 3) * 32) / 16, 1);
      wgmma_commit();
      wgmma_wait<0>();
      if (pair + 1 == pairs && lane == 0) mbarrier_arrive(&s.query_empty);

      // Largest scores of both tiles, then one running maximum for both warpgroups.
      const int valid = count - (2 * pair + group) * kTileKeys - 2 * (lane & 3);
      float largest[2] = {-1e30f, -1e30f};
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          score[4 * j + i] = 8 * j + (i & 1) < valid ? score[4 * j + i] * scale : -INFINITY;
          largest[i >> 1] = fmaxf(largest[i >> 1], score[4 * j + i]);
        }
      float factor[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        largest[i] = quad_max(largest[i]);
        if ((lane & 3) == 0) s.top[group][head + 8 * i] = largest[i];
      }
      named_barrier(1, 256);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float fresh = fmaxf(top[i], fmaxf(largest[i], s.top[group ^ 1][head + 8 * i]));
        factor[i] = exp2_fast(top[i] - fresh);
        top[i] = fresh;
        total[i] *= factor[i];
      }
      uint32_t own[16];
      const uint32_t store = smem_address(s.probability[group]) + (warp * 16 + (lane & 15)) * 128;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float* e = score + 8 * k + 2 * i;  // register i of the operand: rows +0, +8, +0, +8, columns +0, +0, +8, +8
          e[0] = exp2_fast(e[0] - top[i & 1]);
          e[1] = exp2_fast(e[1] - top[i & 1]);
          total[i & 1] += e[0] + e[1];
          own[4 * k + i] = pack_bf16x2(e[0], e[1]);
        }
        store_matrix4(store + (((2 * k + (lane >> 4)) ^ (lane & 7)) << 4), own[4 * k], own[4 * k + 1], own[4 * k + 2],
                      own[4 * k + 3]);
      }
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        sum[4 * j] *= factor[0];
        sum[4 * j + 1] *= factor[0];
        sum[4 * j + 2] *= factor[1];
        sum[4 * j + 3] *= factor[1];
      }
      fence_async_shared();
      named_barrier(2, 256);
      mbarrier_wait(&s.full[group ^ 1][group], parity);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        Wgmma<128>::rs<1>(sum, own + 4 * k, own_values + k * 128, 1);
        Wgmma<128>::rs<1>(sum + 64, own + 4 * k, own_values + k * 128 + kTwoSlabs, 1);
      }
      wgmma_commit();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        Wgmma<128>::ss<1>(sum, other_probability + k * 2, other_values + k * 128, 1);
        Wgmma<128>::ss<1>(sum + 64, other_probability + k * 2, other_values + k * 128 + kTwoSlabs, 1);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (lane == 0) mbarrier_arrive(&s.empty[group][group]);
      wgmma_wait<0>();
      if (lane == 0) mbarrier_arrive(&s.empty[group ^ 1][group]);
      parity ^= 1;
    } while (++pair < pairs);

    // Both tiles' totals, the sink, the division, the rotation back, the store.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      total[i] = quad_sum(total[i]);
      if ((lane & 3) == 0) s.total[group][head + 8 * i] = total[i];
    }
    named_barrier(1, 256);
    float inverse[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // One order of addition in both warpgroups.
      const float z = s.total[0][head + 8 * i] + s.total[1][head + 8 * i] + exp2f(p.args.sink[head + 8 * i] * kLog2e - top[i]);
      inverse[i] = 1.0f / (z * kStoredScale);
    }
    uint16_t* out = static_cast<uint16_t*>(p.args.o.data) +
                    (static_cast<int64_t>(q) * kHeads + head) * kHeadDim + group * 256 + 2 * (lane & 3);
    const int rotated = kHeadDim - p.args.rope.dim - group * 256;  // first rotated column of this half
#pragma unroll
    for (int j = 0; j < 32; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float a = round_to_bf16(sum[4 * j + 2 * i] * inverse[i]), b = round_to_bf16(sum[4 * j + 2 * i + 1] * inverse[i]);
        if (8 * j >= rotated && j >= 16) {
          const float2 cs = s.rotation[turn][(8 * j - rotated) / 2 + (lane & 3)];
          const float re = a * cs.x + b * cs.y;
          b = b * cs.x - a * cs.y;
          a = re;
        }
        *reinterpret_cast<uint32_t*>(out + i * 8 * kHeadDim + 8 * j) = pack_bf16x2(a, b);
      }
    named_barrier(2, 256);  // totals are read before the next query writes them
  }
}

// cos and sin of every query's position; in double, so apart from the kernel that has no registers to spare.
__global__ void rotations_kernel(const AttentionProblem p, float2* rotations) {
  const int pairs = p.args.rope.dim / 2, i = blockIdx.x * 256 + threadIdx.x;
  if (i < p.out.rows * pairs) rotations[i] = rotation(p.args.rope, i % pairs, p.out.position[i / pairs]);
}

__global__ void __launch_bounds__(kThreads, 1) matrix_kernel(const __grid_constant__ AttentionProblem p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& s = *reinterpret_cast<Shared*>(shared_bytes);
  if (threadIdx.x == 0) {
    mbarrier_init(&s.query_full, kProducers);
    mbarrier_init(&s.query_empty, 8);
    for (int i = 0; i < 4; ++i) {
      mbarrier_init(&s.full[i >> 1][i & 1], kProducers);
      mbarrier_init(&s.empty[i >> 1][i & 1], 4);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group >= 2) {
    registers_give<64>();
    produce(s, p, threadIdx.x - 256);
  } else {
    registers_take<192>();
    consume(s, p, group, thread);
  }
}

}  // namespace

bool matrix_attention_takes(const AttentionProblem& p, int most_keys) {
  return p.args.heads == kHeads && p.args.head_dim == kHeadDim && p.args.rope.dim <= 64 && p.round_probabilities &&
         most_keys <= kMostKeys;
}

void matrix_attention(AttentionProblem p, float2* rotations, int multiprocessors, cudaStream_t stream) {
  const int angles = p.out.rows * p.args.rope.dim / 2;
  rotations_kernel<<<(angles + 255) / 256, 256, 0, stream>>>(p, rotations);
  HADAL_CUDA_LAUNCHED("rotations_kernel");
  p.rotations = rotations;
  constexpr int kBytes = sizeof(Shared);
  static_assert(kBytes <= 227 * 1024);
  static const cudaError_t prepared =
      cudaFuncSetAttribute(matrix_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  HADAL_CUDA(prepared);
  const int blocks = p.out.rows < multiprocessors ? p.out.rows : multiprocessors;
  matrix_kernel<<<blocks, kThreads, kBytes, stream>>>(p);
  HADAL_CUDA_LAUNCHED("matrix_attention");
}

}  // namespace hadal::cuda
