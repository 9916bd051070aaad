// Sparse attention on the matrix unit: 64 heads of 512 channels, one query at a time on a multiprocessor, persistent.
//
// The output of a query, 64 x 512 in fp32, is half of the register file, so two warpgroups own 256 columns each. Keys come
// in pairs of tiles of 64: warpgroup w computes the scores and probabilities of tile w of a pair, leaves these in shared
// memory, and adds both tiles' values to its own columns. One tile serves as key and as value. Two more warpgroups bring
// the keys, half a tile at a time, as soon as its readers are done: they gather expanded rows by cp.async, or expand packed
// ones themselves.
//
// Tile bounds and the order of sums (softmax.cuh) depend on the place in the query's list only.
// The arrangement "two warpgroups split the output columns" is FlashMLA's (deepseek-ai/FlashMLA csrc/sm90/prefill/sparse).
#include <algorithm>

#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/sparse_attention/consume.cuh"
#include "ops/sparse_attention/matrix.cuh"
#include "ops/sparse_attention/query.cuh"
#include "ops/sparse_attention/tile.cuh"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kProducers = 256;  // half as many gather half as fast: a warp issues a copy every 50 cycles
constexpr int kMostKeys = 768;   // a multiple of two tiles

struct Shared {
  static constexpr int kKeySlab = kSlabBytes, kTileStride = 8 * kSlabBytes;
  static constexpr bool kWindow = false;
  uint8_t query[8 * kSlabBytes];
  uint8_t tile[2][8 * kSlabBytes];
  uint8_t probability[2][kSlabBytes];
  float sink[2][kHeads], top[2][kHeads], total[2][kHeads];
  // Of two queries in turn: expanded rows, or addresses of packed ones with kIsEntry. Only the producers read it.
  uint64_t row[2][kMostKeys];
  int count[4];  // of four in turn: the consumers may be two queries behind
  float2 rotation[4][32];
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

// ---- where every key of a query lies, once a query
__device__ __forceinline__ KeyList list_of(const AttentionProblem& p, int query) {
  return key_list(p.args, query, p.in, p.out, p.segments, p.has_entries ? &p.entries : nullptr, &p.selection);
}
// Expanded rows: of entries first their rows in the pool, below zero, then what became of these.
struct ListPart {
  int row[kMostKeys / kProducers];
};
__device__ __forceinline__ ListPart find_rows(const ExpandedRows& e, const AttentionProblem& p, const KeyList& keys,
                                              int query, int thread) {
  ListPart list;
#pragma unroll
  for (int i = 0; i < kMostKeys / kProducers; ++i) {
    const int t = thread + i * kProducers;
    list.row[i] = t < keys.window_count() ? expanded_window_row(e, p, keys, query, t)
                  : t < keys.count()      ? ~keys.entries[t - keys.window_count()]
                                          : 0;
  }
  return list;
}
__device__ __forceinline__ void keep_rows(Shared& s, const ExpandedRows& e, const KeyList& keys, const ListPart& list,
                                          int turn, int thread) {
#pragma unroll
  for (int i = 0; i < kMostKeys / kProducers; ++i)
    s.row[turn & 1][thread + i * kProducers] =
        list.row[i] < 0 ? expanded_entry_row(e, ~list.row[i]) : static_cast<uint64_t>(list.row[i]);
  if (thread == 0) s.count[turn] = keys.count();
}

// Addresses of packed rows.
__device__ __forceinline__ void list_packed(Shared& s, const AttentionProblem& p, const KeyList& keys, int turn,
                                            int thread) {
  thread = opaque(thread);
  int likely[kMostKeys / kProducers];
  uint64_t row[kMostKeys / kProducers];
#pragma unroll
  for (int i = 0; i < kMostKeys / kProducers; ++i) likely[i] = likely_entry(p, keys, thread + i * kProducers);
#pragma unroll
  for (int i = 0; i < kMostKeys / kProducers; ++i) row[i] = packed_row(p, keys, thread + i * kProducers, likely[i]);
#pragma unroll
  for (int i = 0; i < kMostKeys / kProducers; ++i) {
    s.row[turn & 1][thread + i * kProducers] = row[i] != 0 ? row[i] : reinterpret_cast<uint64_t>(kZeroEntry) | kIsEntry;
  }
  if (thread == 0) s.count[turn] = keys.count();
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
  wait_for_previous();
  const int first = blockIdx.x, end = p.out.rows;
  {
    const KeyList keys = list_of(p, first);
    keep_rows(s, e, keys, find_rows(e, p, keys, first, thread), 0, thread);
  }
  named_barrier(3, kProducers);
  for (int query = first; query < end; query += gridDim.x, turn = (turn + 1) & 3) {
    const int pairs = max((s.count[turn] + 2 * kTileKeys - 1) / (2 * kTileKeys), 1);
    const int next = query + gridDim.x;
    KeyList keys;
    ListPart list;
    for (int pair = 0; pair < pairs; ++pair) {
      const bool last = pair + 1 == pairs;
      if (pair == 0) {
        mbarrier_wait(&s.query_empty, query_parity);
        query_parity ^= 1;
        load_query(s.query, &s.query_full, p, query, thread);
        mbarrier_arrive(&s.query_full);
      }
      int row[2][kWarpRows];
#pragma unroll
      for (int i = 0; i < 2 * kWarpRows; ++i)
        row[i / kWarpRows][i % kWarpRows] =
            static_cast<int>(s.row[turn & 1][pair * 2 * kTileKeys + kProducers / 32 * i + (thread >> 5)]);
      if (thread < 2 * kTileKeys) {  // the next pair: half of the rows are not in L2
        if (pair + 1 < pairs)
          prefetch_l2(e.rows + s.row[turn & 1][(pair + 1) * 2 * kTileKeys + thread] * kExpandedBytes, kExpandedBytes);
        else if (pair > 2 && next < end)
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
      // The next query's rows: a chain of loads that takes as long as a pair, so a part of it with each pair.
      if (next < end) {
        if (pair == 0) keys = list_of(p, next);
        if (pair == 1 || (last && pair < 1)) list = find_rows(e, p, keys, next, opaque(thread));
        if (pair == 2 || (last && pair < 2)) {
          keep_rows(s, e, keys, list, (turn + 1) & 3, opaque(thread));
          named_barrier(3, kProducers);
        }
      }
    }
    named_barrier(3, kProducers);
  }
}

// The other way: packed rows are read into registers a step ahead and expanded into the tiles. Less memory traffic, but the
// expansion shows.
__device__ __forceinline__ void expand(Shared& s, const AttentionProblem& p, int thread) {
  const int r = (thread >> 5) * 8 + (thread & 7), side = (thread >> 3) & 3;  // eight rows side by side: eight banks
  uint32_t parity = 1, query_parity = 1;
  PackedPart waiting;
  bool have = false;
  const auto flush = [&](int tile, int half) {
    mbarrier_wait(&s.empty[tile][half], parity);
    store_part(s.tile[tile], r, waiting, half, side);
    mbarrier_arrive(&s.full[tile][half]);  // readers fence: a fence here would wait for the loads under way
  };
  int turn = 0;
  KeyList first = window_keys(p.args, blockIdx.x, p.in, p.out, p.segments);
  const int step_row = p.out.step_row[blockIdx.x];
  prefetch_ring(p, first, thread);
  wait_for_previous();
  if (p.has_entries) add_entries(first, step_row, p.selection);
  list_packed(s, p, first, 0, thread);
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
        load_query(s.query, &s.query_full, p, query, thread);
        mbarrier_arrive(&s.query_full);
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
      if (pair == 0 && query + gridDim.x < p.out.rows) {
        list_packed(s, p, list_of(p, query + gridDim.x), (turn + 1) & 3, thread);
      }
    }
    named_barrier(3, kProducers);
  }
  if (have) flush(1, 1);
}

template <bool Packed>
__global__ void __launch_bounds__(kThreads, 1)
    matrix_kernel(const __grid_constant__ AttentionProblem p, const __grid_constant__ ExpandedRows e) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& s = *reinterpret_cast<Shared*>(shared_bytes);
  if (threadIdx.x == 0) {
    mbarrier_init(&s.query_full, 2 * kProducers);
    mbarrier_init(&s.query_empty, 8);
    for (int i = 0; i < 4; ++i) {
      mbarrier_init(&s.full[i >> 1][i & 1], Packed ? kProducers : kProducers + kProducers / 32);
      mbarrier_init(&s.empty[i >> 1][i & 1], 4);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  let_next_start();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group >= 2) {
    registers_give<48>();
    if constexpr (Packed)
      expand(s, p, threadIdx.x - 256);
    else
      gather(s, p, e, threadIdx.x - 256);
  } else {
    registers_take<208>();
    if (group == 0)
      consume<0>(s, p, blockIdx.x, p.out.rows, gridDim.x, thread);
    else
      consume<1>(s, p, blockIdx.x, p.out.rows, gridDim.x, thread);
  }
}

size_t align(size_t bytes) { return (bytes + 255) / 256 * 256; }

// All but the addresses.
ExpandedRows layout(const AttentionProblem& p, AttentionKernel kernel) {
  ExpandedRows e{};
  while (p.has_entries && 1 << e.page_shift < p.entries.page_rows) ++e.page_shift;
  const int64_t pages = p.has_entries ? int64_t{p.segments.count} * p.segments.page_stride : 0;
  const int64_t entries = kernel == AttentionKernel::shared ? pages * p.entries.page_rows : 0;
  e.first_latent = static_cast<int>(1 + entries);
  e.first_ring = e.first_latent + p.in.rows;
  e.count = e.first_ring + int64_t{p.segments.count} * p.args.ring.window;
  e.begin = p.args.shared != nullptr && p.args.shared->filled ? e.first_latent : 0;
  return e;
}

}  // namespace

bool matrix_attention_takes(const AttentionProblem& p, int most_keys) {
  return p.args.heads == kHeads && p.args.head_dim == kHeadDim && p.args.rope.dim <= 64 && p.args.scale > 0 &&
         p.round_probabilities && most_keys <= kMostKeys;
}

AttentionKernel attention_kernel_for(const AttentionProblem& p, int most_keys, int multiprocessors) {
  if (p.kernel) return *p.kernel;
  const int64_t rows = p.out.rows, page_rows = p.entries.page_rows;
  if (most_keys <= kMostFewKeys) {
    if (8 * rows <= multiprocessors) return AttentionKernel::eight;
    if (4 * rows <= multiprocessors) return AttentionKernel::four;
  }
  // With fewer queries a request the kernel that has the next query's rows under way is faster.
  if (window_attention_takes(p) && rows >= 4 * p.segments.count) return AttentionKernel::window;
  // Shared rows when each serves five keys on average, so that expanding them once saves time, and pages can be found.
  const bool pages = !p.has_entries || (p.entries.pages > 0 && (page_rows & (page_rows - 1)) == 0);
  constexpr int64_t kMostSharedRows = 512 << 10;  // half a gigabyte of scratch
  const ExpandedRows e = layout(p, AttentionKernel::shared);
  return pages && e.count <= kMostSharedRows && 5 * (e.count - e.begin) <= rows * most_keys ? AttentionKernel::shared
                                                                                            : AttentionKernel::packed;
}

size_t attention_scratch_bytes(const AttentionProblem& p, AttentionKernel kernel) {
  if (kernel != AttentionKernel::shared) return 0;
  return static_cast<size_t>(layout(p, kernel).count) * kExpandedBytes +
         (p.has_entries ? align(sizeof(int32_t) * p.entries.pages) : 0);
}

void matrix_attention(const AttentionProblem& p, AttentionKernel kernel, int most_keys, void* scratch, void* lasting,
                      int multiprocessors, cudaStream_t stream) {
  if (kernel == AttentionKernel::eight || kernel == AttentionKernel::four)
    return few_attention(p, kernel == AttentionKernel::eight ? 8 : 4, most_keys, lasting, multiprocessors, stream);
  if (kernel == AttentionKernel::window) return window_attention(p, multiprocessors, stream);
  ExpandedRows e{};
  if (kernel == AttentionKernel::shared) {
    e = layout(p, kernel);
    auto* at = static_cast<uint8_t*>(scratch);
    if (p.has_entries) {
      e.page_begin = reinterpret_cast<int32_t*>(at);
      at += align(sizeof(int32_t) * p.entries.pages);
    }
    e.rows = at;
    launch_expand(p, e, stream);
    if (p.args.shared != nullptr) p.args.shared->filled = true;
  }

  const auto run = kernel == AttentionKernel::packed ? matrix_kernel<true> : matrix_kernel<false>;
  constexpr int kBytes = sizeof(Shared);
  static_assert(kBytes <= 227 * 1024);
  launch("matrix_attention", run,
         {.grid = dim3(std::min(p.out.rows, multiprocessors)),
          .block = dim3(kThreads),
          .shared = kBytes,
          .stream = stream,
          .early = true},
         p, e);
}

}  // namespace hadal::cuda
