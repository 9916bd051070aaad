// Sparse attention on the matrix unit: 64 heads of 512 channels, one query at a time on a multiprocessor, persistent.
//
// The output of a query, 64 x 512 in fp32, is half of the register file, so two warpgroups own 256 columns each. Keys come
// in pairs of tiles of 64: warpgroup w computes the scores of tile w of a pair, both agree on the running maximum through
// shared memory, leave their probabilities there, and add both tiles' values to their own columns. One tile serves as
// key and as value. Two more warpgroups bring the keys, half a tile at a time, as soon as its readers are done: they gather
// expanded rows by cp.async, or expand packed ones themselves.
//
// Tile bounds and the order of sums depend on the place in the query's list only.
// The arrangement "two warpgroups split the output columns" is FlashMLA's (deepseek-ai/FlashMLA csrc/sm90/prefill/sparse).
#include <algorithm>

#include "ops/cuda/errors.h"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/sparse_attention/matrix.cuh"
#include "ops/sparse_attention/tile.cuh"

namespace hadal::cuda {
namespace {

constexpr int kHeads = 64;
constexpr int kThreads = 512;
constexpr int kProducers = 256;  // half as many gather half as fast: a warp issues a copy every 50 cycles
constexpr int kMostKeys = 768;   // a multiple of two tiles
// 256 columns as two products of 128: with four warpgroups ptxas has 128 registers at entry and refuses wider ones.
constexpr uint64_t kTwoSlabs = 2 * kSlabBytes / 16;
constexpr float kLog2e = 1.4426950408889634f;

struct Shared {
  uint8_t query[8 * kSlabBytes];
  uint8_t tile[2][8 * kSlabBytes];
  uint8_t probability[2][kSlabBytes];  // [head][key] of a tile
  float top[2][kHeads];                // largest score of a tile
  float total[2][kHeads];
  // Of two queries in turn: expanded rows, or addresses of packed ones with kIsEntry. Only the producers read it.
  uint64_t row[2][kMostKeys];
  float2 rotation[4][32];  // of four in turn: the consumers may be two queries behind
  int count[4];
  uint64_t query_full, query_empty;
  uint64_t full[2][2], empty[2][2];  // [tile][half]
};

// ---- producers: warpgroups 2 and 3 -------------------------------------------------------------------------------------------
// Keeps what depends on x from being computed once and held in registers for the whole kernel.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Stands for packed keys past the end of a list. Whatever a tile held before might be NaN, and 0 times NaN too.
__device__ __align__(16) const uint8_t kZeroEntry[kHeadDim / 2 + kHeadDim / 16] = {};

// Where every key of a query lies, once a query.
template <bool Packed>
__device__ __forceinline__ void list_rows(Shared& s, const AttentionProblem& p, const ExpandedRows& e, int query,
                                          int turn, int thread) {
  thread = opaque(thread);
  const KeyList keys =
      key_list(p.args, query, p.in, p.out, p.segments, p.has_entries ? &p.entries : nullptr, &p.selection);
  const int count = keys.count(), most = (max(count, 1) + 2 * kTileKeys - 1) / (2 * kTileKeys) * (2 * kTileKeys);
#pragma unroll 1
  for (int t = thread; t < most; t += kProducers) {
    if constexpr (Packed)
      s.row[turn & 1][t] = t < count ? packed_row(p, keys, t) : reinterpret_cast<uint64_t>(kZeroEntry) | kIsEntry;
    else
      s.row[turn & 1][t] = static_cast<uint64_t>(expanded_row(e, p, keys, query, t));
  }
  if (thread < p.args.rope.dim / 2)
    s.rotation[turn][thread] = __ldg(&e.rotations[query * (p.args.rope.dim / 2) + thread]);
  if (thread == 0) s.count[turn] = count;
}

__device__ __forceinline__ void load_query(Shared& s, const AttentionProblem& p, int query, int thread) {
  const uint8_t* from =
      static_cast<const uint8_t*>(p.args.q.data) + static_cast<int64_t>(query) * kHeads * kHeadDim * 2;
  const uint32_t to = smem_address(s.query);
  thread = opaque(thread);
#pragma unroll 4
  for (int i = thread; i < kHeads * kHeadDim / 8; i += kProducers) {
    const int head = i >> 6, chunk = i & 63;
    copy16_async(to + (chunk >> 3) * kSlabBytes + head * 128 + (((chunk & 7) ^ (head & 7)) << 4), from + i * 16);
  }
  mbarrier_arrive_after_copies(&s.query_full);
}

// A warp copies half a row (512 bytes) at once: rows `warp`, `warp` + 8, ... of a tile.
constexpr int kWarpRows = kTileKeys / (kProducers / 32);
__device__ __forceinline__ void load_half(Shared& s, const ExpandedRows& e, const int (&row)[kWarpRows], int tile,
                                          int half, int thread) {
  static_assert(kProducers == 256);  // then all rows of a warp have the same swizzle
  const int warp = thread >> 5, lane = thread & 31;
  const uint32_t to =
      smem_address(s.tile[tile]) + (half * 4 + (lane >> 3)) * kSlabBytes + warp * 128 + (((lane & 7) ^ warp) << 4);
  const uint8_t* from = e.rows + half * 512 + lane * 16;
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) copy16_async(to + i * 1024, from + static_cast<int64_t>(row[i]) * kExpandedBytes);
  mbarrier_arrive_after_copies(&s.full[tile][half]);
  // An ordinary arrival as well: it also announces what list_rows wrote.
  if (lane == 0) mbarrier_arrive(&s.full[tile][half]);
}

__device__ __forceinline__ void gather(Shared& s, const AttentionProblem& p, const ExpandedRows& e, int thread) {
  uint32_t parity = 1, query_parity = 1;
  int turn = 0;
  const int first = blockIdx.x, end = p.out.rows;
  list_rows<false>(s, p, e, first, 0, thread);
  named_barrier(3, kProducers);
  for (int query = first; query < end; query += gridDim.x, turn = (turn + 1) & 3) {
    const int pairs = max((s.count[turn] + 2 * kTileKeys - 1) / (2 * kTileKeys), 1);
    for (int pair = 0; pair < pairs; ++pair) {
      if (pair == 0) {
        mbarrier_wait(&s.query_empty, query_parity);
        query_parity ^= 1;
        load_query(s, p, query, thread);
      }
      int row[2][kWarpRows];
#pragma unroll
      for (int i = 0; i < 2 * kWarpRows; ++i)
        row[i / kWarpRows][i % kWarpRows] =
            static_cast<int>(s.row[turn & 1][pair * 2 * kTileKeys + kProducers / 32 * i + (thread >> 5)]);
      if (thread < 2 * kTileKeys) {  // the next pair: half of the rows are not in L2
        if (pair + 1 < pairs)
          prefetch_l2(e.rows + s.row[turn & 1][(pair + 1) * 2 * kTileKeys + thread] * kExpandedBytes, kExpandedBytes);
        else if (pair > 0 && query + gridDim.x < end)
          prefetch_l2(e.rows + s.row[(turn + 1) & 1][thread] * kExpandedBytes, kExpandedBytes);
      }
      // In the order in which the consumers let halves go.
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int tile = i >> 1, half = i & 1;
        mbarrier_wait(&s.empty[tile][half], parity);
        load_half(s, e, row[tile], tile, half, thread);
      }
      parity ^= 1;
      // A chain of loads that takes as long as a pair: early.
      if (pair == 0 && query + gridDim.x < end) {
        list_rows<false>(s, p, e, query + gridDim.x, (turn + 1) & 3, thread);
        named_barrier(3, kProducers);
      }
    }
    named_barrier(3, kProducers);
  }
}

// The other way: packed rows are read into registers a step ahead and expanded into the tiles. Less memory traffic, but the
// expansion shows.
__device__ __forceinline__ void expand(Shared& s, const AttentionProblem& p, const ExpandedRows& e, int thread) {
  const int r = thread >> 2, side = thread & 3;
  uint32_t parity = 1, query_parity = 1;
  PackedPart waiting;
  bool have = false;
  const auto flush = [&](int tile, int half) {
    mbarrier_wait(&s.empty[tile][half], parity);
    store_part(s.tile[tile], r, waiting, half, side);
    fence_async_shared();
    mbarrier_arrive(&s.full[tile][half]);
  };
  int turn = 0;
  list_rows<true>(s, p, e, blockIdx.x, 0, thread);
  named_barrier(3, kProducers);
  for (int query = blockIdx.x; query < p.out.rows; query += gridDim.x, turn = (turn + 1) & 3) {
    const int pairs = max((s.count[turn] + 2 * kTileKeys - 1) / (2 * kTileKeys), 1);
    for (int pair = 0; pair < pairs; ++pair) {
      const uint64_t* row = s.row[turn & 1] + pair * 2 * kTileKeys + r;
      PackedPart fresh = load_part(row[0], 0, side);
      if (have) {
        flush(1, 1);
        parity ^= 1;
      }
      if (pair == 0) {
        mbarrier_wait(&s.query_empty, query_parity);
        query_parity ^= 1;
        load_query(s, p, query, thread);
      }
      waiting = fresh;
      fresh = load_part(row[0], 1, side);
      flush(0, 0);
      waiting = fresh;
      fresh = load_part(row[kTileKeys], 0, side);
      flush(0, 1);
      waiting = fresh;
      fresh = load_part(row[kTileKeys], 1, side);
      flush(1, 0);
      waiting = fresh;
      have = true;
      if (pair == 0 && query + gridDim.x < p.out.rows)
        list_rows<true>(s, p, e, query + gridDim.x, (turn + 1) & 3, thread);
    }
    named_barrier(3, kProducers);
  }
  if (have) flush(1, 1);
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

// From the parts of four blocks that each lane of a quad has: all four parts of block t, on lane t.
__device__ __forceinline__ uint4 transpose_quad(const uint32_t (&v)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, upper = (threadIdx.x & 2) != 0;
  uint32_t low[2], high[2];  // of blocks (t & 1) and (t & 1) + 2: the parts of lanes t & 2 and (t & 2) + 1
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t keep = odd ? v[2 * h + 1] : v[2 * h];
    const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? v[2 * h] : v[2 * h + 1], 1);
    low[h] = odd ? other : keep;
    high[h] = odd ? keep : other;
  }
  const uint32_t other_low = __shfl_xor_sync(0xffffffffu, upper ? low[0] : low[1], 2);
  const uint32_t other_high = __shfl_xor_sync(0xffffffffu, upper ? high[0] : high[1], 2);
  return upper ? make_uint4(other_low, other_high, low[1], high[1])
               : make_uint4(low[0], high[0], other_low, other_high);
}

// Thread's rows are warp * 16 + lane / 4 and 8 more; its columns of an 8-wide block are 2 (lane % 4) and the next.
__device__ __forceinline__ void consume(Shared& s, const AttentionProblem& p, const ExpandedRows& e, int group,
                                        int thread) {
  const int warp = thread >> 5, lane = thread & 31;
  const int head = warp * 16 + (lane >> 2);
  const float scale = p.args.scale * kLog2e / kStoredScale;  // scores in powers of two
  const uint64_t query = k_major_descriptor(smem_address(s.query));
  const uint64_t keys = k_major_descriptor(smem_address(s.tile[group]));
  const uint64_t values[2] = {mn_major_descriptor(smem_address(s.tile[0]) + group * 4 * kSlabBytes, kSlabBytes),
                              mn_major_descriptor(smem_address(s.tile[1]) + group * 4 * kSlabBytes, kSlabBytes)};
  const uint64_t probability[2] = {k_major_descriptor(smem_address(s.probability[0])),
                                   k_major_descriptor(smem_address(s.probability[1]))};
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
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint64_t from = half * 4 * kSlabBytes / 16;
        mbarrier_wait(&s.full[group][half], parity);
        fence_async_shared();  // keys and query came by cp.async
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 16; ++k) {
          const uint64_t at = from + ((k >> 2) * kSlabBytes + (k & 3) * 32) / 16;
          Wgmma<64>::ss(score, query + at, keys + at, 1);
        }
        wgmma_commit();
      }
      count = s.count[turn];  // written before the first half was announced
      pairs = max((count + 2 * kTileKeys - 1) / (2 * kTileKeys), 1);
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
      const uint32_t store = smem_address(s.probability[group]) + (warp * 16 + (lane & 15)) * 128;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t four[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float* w = score + 8 * k + 2 * i;  // register i of the operand: rows +0, +8, +0, +8, columns +0, +0, +8, +8
          w[0] = exp2_fast(w[0] - top[i & 1]);
          w[1] = exp2_fast(w[1] - top[i & 1]);
          total[i & 1] += w[0] + w[1];
          four[i] = pack_bf16x2(w[0], w[1]);
        }
        store_matrix4(store + (((2 * k + (lane >> 4)) ^ (lane & 7)) << 4), four[0], four[1], four[2], four[3]);
      }
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        sum[4 * j] *= factor[0];
        sum[4 * j + 1] *= factor[0];
        sum[4 * j + 2] *= factor[1];
        sum[4 * j + 3] *= factor[1];
      }
      mbarrier_wait(&s.full[group ^ 1][group], parity);
      fence_async_shared();
      named_barrier(2, 256);
      wgmma_fence();
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          Wgmma<128>::ss<1>(sum, probability[tile] + k * 2, values[tile] + k * 128, 1);
          Wgmma<128>::ss<1>(sum + 64, probability[tile] + k * 2, values[tile] + k * 128 + kTwoSlabs, 1);
        }
        wgmma_commit();
      }
      // The first tile's place is refilled while the second one's values are added.
      wgmma_wait<1>();
      if (lane == 0) mbarrier_arrive(&s.empty[0][group]);
      wgmma_wait<0>();
      if (lane == 0) mbarrier_arrive(&s.empty[1][group]);
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
      const float z =
          s.total[0][head + 8 * i] + s.total[1][head + 8 * i] + exp2f(p.args.sink[head + 8 * i] * kLog2e - top[i]);
      inverse[i] = 1.0f / (z * kStoredScale);
    }
    // Lane t of a quad stores block 4 c + t of 8 columns.
    uint16_t* out = static_cast<uint16_t*>(p.args.o.data) + (static_cast<int64_t>(q) * kHeads + head) * kHeadDim +
                    group * 256 + 8 * (lane & 3);
    const int rotated = kHeadDim - p.args.rope.dim - group * 256;  // first rotated column of this half
#pragma unroll
    for (int c = 0; c < 8; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t four[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          const int j = 4 * c + b;
          float x = round_to_bf16(sum[4 * j + 2 * i] * inverse[i]),
                y = round_to_bf16(sum[4 * j + 2 * i + 1] * inverse[i]);
          if (8 * j >= rotated && j >= 16) {
            const float2 cs = s.rotation[turn][(8 * j - rotated) / 2 + (lane & 3)];
            const float re = x * cs.x + y * cs.y;
            y = y * cs.x - x * cs.y;
            x = re;
          }
          four[b] = pack_bf16x2(x, y);
        }
        *reinterpret_cast<uint4*>(out + i * 8 * kHeadDim + 32 * c) = transpose_quad(four);
      }
    named_barrier(2, 256);  // totals are read before the next query writes them
  }
}

template <bool Packed>
__global__ void __launch_bounds__(kThreads, 1)
    matrix_kernel(const __grid_constant__ AttentionProblem p, const __grid_constant__ ExpandedRows e) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& s = *reinterpret_cast<Shared*>(shared_bytes);
  if (threadIdx.x == 0) {
    mbarrier_init(&s.query_full, kProducers);
    mbarrier_init(&s.query_empty, 8);
    for (int i = 0; i < 4; ++i) {
      mbarrier_init(&s.full[i >> 1][i & 1], Packed ? kProducers : kProducers + kProducers / 32);
      mbarrier_init(&s.empty[i >> 1][i & 1], 4);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group >= 2) {
    registers_give<64>();
    if constexpr (Packed)
      expand(s, p, e, threadIdx.x - 256);
    else
      gather(s, p, e, threadIdx.x - 256);
  } else {
    registers_take<192>();
    consume(s, p, e, group, thread);
  }
}

size_t align(size_t bytes) { return (bytes + 255) / 256 * 256; }

// All but the addresses.
ExpandedRows layout(const AttentionProblem& p, int most_keys, KeySource source) {
  ExpandedRows e{};
  e.source = source;
  e.most_keys = most_keys;
  e.first_ring = 1 + p.in.rows;
  e.first_entry = e.first_ring + p.segments.count * p.args.ring.window;
  while (p.has_entries && 1 << e.page_shift < p.entries.page_rows) ++e.page_shift;
  const int64_t pages = p.has_entries ? int64_t{p.segments.count} * p.segments.page_stride : 0;
  if (source == KeySource::shared) e.count = e.first_entry + pages * p.entries.page_rows;
  if (source == KeySource::own) e.count = 1 + int64_t{p.out.rows} * most_keys;
  return e;
}

}  // namespace

bool matrix_attention_takes(const AttentionProblem& p, int most_keys) {
  return p.args.heads == kHeads && p.args.head_dim == kHeadDim && p.args.rope.dim <= 64 && p.round_probabilities &&
         most_keys <= kMostKeys;
}

MatrixAttentionPlan plan_matrix_attention(const AttentionProblem& p, int most_keys) {
  // Shared rows when each serves two keys on average and pages can be found.
  const int64_t rows = p.out.rows, page_rows = p.entries.page_rows;
  const bool pages = !p.has_entries || (p.entries.pages > 0 && (page_rows & (page_rows - 1)) == 0);
  constexpr int kFewQueries = 64;                 // beyond, what their own keys take no longer fits in L2
  constexpr int64_t kMostSharedRows = 512 << 10;  // half a gigabyte of scratch
  const int64_t count = layout(p, most_keys, KeySource::shared).count;
  const bool shared = pages && count <= kMostSharedRows && 2 * count <= rows * most_keys;
  return plan_matrix_attention(p, most_keys,
                               shared                ? KeySource::shared
                               : rows <= kFewQueries ? KeySource::own
                                                     : KeySource::packed);
}

MatrixAttentionPlan plan_matrix_attention(const AttentionProblem& p, int most_keys, KeySource source) {
  size_t bytes = align(sizeof(float2) * p.out.rows * (p.args.rope.dim / 2)) +
                 static_cast<size_t>(layout(p, most_keys, source).count) * kExpandedBytes;
  if (source == KeySource::shared && p.has_entries) bytes += align(sizeof(int32_t) * p.entries.pages);
  return {source, bytes};
}

void matrix_attention(const AttentionProblem& p, const MatrixAttentionPlan& plan, int most_keys, void* scratch,
                      int multiprocessors, cudaStream_t stream) {
  ExpandedRows e = layout(p, most_keys, plan.source);
  auto* at = static_cast<uint8_t*>(scratch);
  e.rotations = reinterpret_cast<float2*>(at);
  at += align(sizeof(float2) * p.out.rows * (p.args.rope.dim / 2));
  if (plan.source == KeySource::shared && p.has_entries) {
    e.page_begin = reinterpret_cast<int32_t*>(at);
    at += align(sizeof(int32_t) * p.entries.pages);
  }
  e.rows = at;
  launch_expand(p, e, stream);

  const auto kernel = plan.source == KeySource::packed ? matrix_kernel<true> : matrix_kernel<false>;
  constexpr int kBytes = sizeof(Shared);
  static_assert(kBytes <= 227 * 1024);
  HADAL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  kernel<<<std::min(p.out.rows, multiprocessors), kThreads, kBytes, stream>>>(p, e);
  HADAL_CUDA_LAUNCHED("matrix_attention");
}

}  // namespace hadal::cuda
