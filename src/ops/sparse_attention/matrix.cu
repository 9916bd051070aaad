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
#include "ops/cuda/wgmma.cuh"
#include "ops/sparse_attention/matrix.cuh"
#include "ops/sparse_attention/softmax.cuh"
#include "ops/sparse_attention/tile.cuh"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kProducers = 256;  // half as many gather half as fast: a warp issues a copy every 50 cycles
constexpr int kMostKeys = 768;   // a multiple of two tiles
// 256 columns as two products of 128: with four warpgroups ptxas has 128 registers at entry and refuses wider ones.
constexpr uint64_t kTwoSlabs = 2 * kSlabBytes / 16;

struct Shared {
  uint8_t query[8 * kSlabBytes];
  uint8_t tile[2][8 * kSlabBytes];
  uint8_t probability[2][kSlabBytes];  // [head][key] of a tile
  float top[2][kHeads];                // running maximum after a tile
  float total[2][2][128];              // of the even and the odd tiles, [row][thread]
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

// ---- where every key of a query lies, once a query
__device__ __forceinline__ KeyList list_of(const AttentionProblem& p, int query) {
  return key_list(p.args, query, p.in, p.out, p.segments, p.has_entries ? &p.entries : nullptr, &p.selection);
}
__device__ __forceinline__ void keep_query(Shared& s, const AttentionProblem& p, const ExpandedRows& e, int count,
                                           int query, int turn, int thread) {
  if (thread < p.args.rope.dim / 2)
    s.rotation[turn][thread] = __ldg(&e.rotations[query * (p.args.rope.dim / 2) + thread]);
  if (thread == 0) s.count[turn] = count;
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
__device__ __forceinline__ void keep_rows(Shared& s, const ExpandedRows& e, const AttentionProblem& p,
                                          const KeyList& keys, const ListPart& list, int query, int turn, int thread) {
#pragma unroll
  for (int i = 0; i < kMostKeys / kProducers; ++i)
    s.row[turn & 1][thread + i * kProducers] =
        list.row[i] < 0 ? expanded_entry_row(e, ~list.row[i]) : static_cast<uint64_t>(list.row[i]);
  keep_query(s, p, e, keys.count(), query, turn, thread);
}

// Addresses of packed rows.
__device__ __forceinline__ void list_packed(Shared& s, const AttentionProblem& p, const ExpandedRows& e, int query,
                                            int turn, int thread) {
  thread = opaque(thread);
  const KeyList keys = list_of(p, query);
  uint64_t row[kMostKeys / kProducers];
#pragma unroll
  for (int i = 0; i < kMostKeys / kProducers; ++i) {  // chains of loads side by side
    const int t = thread + i * kProducers;
    row[i] = t < keys.count() ? packed_row(p, keys, t) : reinterpret_cast<uint64_t>(kZeroEntry) | kIsEntry;
  }
#pragma unroll
  for (int i = 0; i < kMostKeys / kProducers; ++i) s.row[turn & 1][thread + i * kProducers] = row[i];
  keep_query(s, p, e, keys.count(), query, turn, thread);
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
  {
    const KeyList keys = list_of(p, first);
    keep_rows(s, e, p, keys, find_rows(e, p, keys, first, thread), first, 0, thread);
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
          keep_rows(s, e, p, keys, list, next, (turn + 1) & 3, opaque(thread));
          named_barrier(3, kProducers);
        }
      }
    }
    named_barrier(3, kProducers);
  }
}

// The other way: packed rows are read into registers a step ahead and expanded into the tiles. Less memory traffic, but the
// expansion shows.
__device__ __forceinline__ void expand(Shared& s, const AttentionProblem& p, const ExpandedRows& e, int thread) {
  const int r = (thread >> 5) * 8 + (thread & 7), side = (thread >> 3) & 3;  // eight rows side by side: eight banks
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
  list_packed(s, p, e, blockIdx.x, 0, thread);
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
      if (pair == 0 && query + gridDim.x < p.out.rows) list_packed(s, p, e, query + gridDim.x, (turn + 1) & 3, thread);
    }
    named_barrier(3, kProducers);
  }
  if (have) flush(1, 1);
}

// ---- consumers: warpgroups 0 and 1 -------------------------------------------------------------------------------
// Group g has the tiles of its parity: it multiplies them with the query and finds their probabilities. Both tiles' values
// are added to columns 256 g .. 256 g + 255, 128 at a time, so that one half is moved to the new maximum while the matrix
// unit adds to the other. The odd group comes behind the even one: the even tile's values are added in the middle of its
// softmax. What is done with is let go at once, for a tile takes 1,500 cycles to come.
enum : int { kTopReady = 1, kEvenReady = 2, kOddReady = 4 };  // named barriers
__device__ __forceinline__ void announce(int barrier) { asm volatile("bar.arrive %0, 256;" ::"r"(barrier) : "memory"); }

template <int Half>
__device__ __forceinline__ void rescale(float (&sum)[128], const float (&factor)[2]) {
#pragma unroll
  for (int i = 64 * Half; i < 64 * Half + 64; ++i) {
    sum[i] *= factor[i >> 1 & 1];
    // The compiler would move it past the fence, and then add one of its own that serialises the matrix unit.
    asm volatile("" : "+f"(sum[i])::"memory");
  }
  wgmma_fence();
}
// The operand: registers of the group's own tile, or shared memory.
template <bool Own>
__device__ __forceinline__ void add_values(float* sum, const uint32_t (&own)[4][4], uint64_t other, uint64_t values) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if constexpr (Own)
      Wgmma<128>::rs<1>(sum, own[k], values + k * 128, 1);
    else
      Wgmma<128>::ss<1>(sum, other + k * 2, values + k * 128, 1);
  }
  wgmma_commit();
}

template <int Group>
__device__ __forceinline__ void consume(Shared& s, const AttentionProblem& p, int thread) {
  constexpr int kOther = Group ^ 1;
  const int warp = thread >> 5, lane = thread & 31;
  const int head = warp * 16 + (lane >> 2);
  const float scale = p.args.scale * kLog2e / kStoredScale;  // scores in powers of two
  const uint64_t query = k_major_descriptor(smem_address(s.query));
  const uint64_t keys = k_major_descriptor(smem_address(s.tile[Group]));
  const uint64_t values[2] = {mn_major_descriptor(smem_address(s.tile[0]) + Group * 4 * kSlabBytes, kSlabBytes),
                              mn_major_descriptor(smem_address(s.tile[1]) + Group * 4 * kSlabBytes, kSlabBytes)};
  const uint64_t other_probability = k_major_descriptor(smem_address(s.probability[kOther]));
  uint32_t parity = 0, query_parity = 0;
  int turn = 0;
  for (int q = blockIdx.x; q < p.out.rows; q += gridDim.x, turn = (turn + 1) & 3) {
    float sum[128], top[2] = {kNoTop, kNoTop}, total[2] = {0, 0}, other_total[2], factor[2][2];  // [tile][row]
#pragma unroll
    for (int i = 0; i < 128; ++i) sum[i] = 0;
    mbarrier_wait(&s.query_full, query_parity);
    query_parity ^= 1;
    int pair = 0, pairs;
    do {
      float score[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) score[i] = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint64_t from = half * 4 * kSlabBytes / 16;
        mbarrier_wait(&s.full[Group][half], parity);
        fence_async_shared();  // keys and query came by cp.async
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 16; ++k) {
          const uint64_t at = from + ((k >> 2) * kSlabBytes + (k & 3) * 32) / 16;
          Wgmma<64>::ss(score, query + at, keys + at, 1);
        }
        wgmma_commit();
      }
      const int count = s.count[turn];  // written before the first half was announced
      pairs = max((count + 2 * kTileKeys - 1) / (2 * kTileKeys), 1);
      const bool last = pair + 1 == pairs;
      wgmma_wait<0>();
      if (last && lane == 0) mbarrier_arrive(&s.query_empty);

      const int valid = count - (2 * pair + Group) * kTileKeys;
      if (valid < kTileKeys) {
#pragma unroll
        for (int k = 0; k < 4; ++k) mask_scores(score + 8 * k, valid - 16 * k - 2 * (lane & 3));
      }
      float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int k = 0; k < 4; ++k) largest_scores(score + 8 * k, largest);
      largest[0] = quad_max(largest[0]) * scale;
      largest[1] = quad_max(largest[1]) * scale;
      const auto follow_other = [&] {  // to the maximum after the other group's tile
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float fresh = s.top[kOther][head + 8 * i];
          factor[kOther][i] = exp2_fast(top[i] - fresh);
          top[i] = fresh;
        }
      };
      if constexpr (Group == 1) {
        named_barrier(kTopReady, 256);
        follow_other();
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float fresh = fmaxf(top[i], largest[i]);
        factor[Group][i] = exp2_fast(top[i] - fresh);
        top[i] = fresh;
        if ((lane & 3) == 0) s.top[Group][head + 8 * i] = fresh;
      }
      if constexpr (Group == 0) announce(kTopReady);

      const auto meet_other = [&] {  // its probabilities, its total, its values
        named_barrier(Group == 0 ? kOddReady : kEvenReady, 256);
        other_total[0] = s.total[kOther][0][thread];
        other_total[1] = s.total[kOther][1][thread];
        mbarrier_wait(&s.full[kOther][Group], parity);
        fence_async_shared();
      };
      uint32_t probability[4][4];
      float part[2][4];
      const uint32_t store = smem_address(s.probability[Group]) + (warp * 16 + (lane & 15)) * 128;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (Group == 1 && k == 2) {
          meet_other();
          rescale<0>(sum, factor[0]);
          add_values<false>(sum, probability, other_probability, values[0]);
          rescale<1>(sum, factor[0]);
          add_values<false>(sum + 64, probability, other_probability, values[0] + kTwoSlabs);
        }
        float both[2];
        probabilities(score + 8 * k, scale, top, probability[k], both);
        part[0][k] = both[0], part[1][k] = both[1];
        store_matrix4(store + (((2 * k + (lane >> 4)) ^ (lane & 7)) << 4), probability[k][0], probability[k][1],
                      probability[k][2], probability[k][3]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (Group == 1) total[i] *= factor[0][i];
        total[i] = fmaf(total[i], factor[Group][i], quad_sum_own(part[i]));
        s.total[Group][i][thread] = total[i];  // the last one counts
      }
      fence_async_shared();
      announce(Group == 0 ? kEvenReady : kOddReady);

      if constexpr (Group == 0) {
        rescale<0>(sum, factor[0]);
        add_values<true>(sum, probability, other_probability, values[0]);
        rescale<1>(sum, factor[0]);
        add_values<true>(sum + 64, probability, other_probability, values[0] + kTwoSlabs);
      }
      wgmma_wait<0>();
      if (lane == 0) mbarrier_arrive(&s.empty[0][Group]);
      if constexpr (Group == 0) {
        meet_other();
        follow_other();
        // Of the last tile the even total is moved at the end.
        total[0] *= last ? 1.0f : factor[1][0];
        total[1] *= last ? 1.0f : factor[1][1];
      }
      rescale<0>(sum, factor[1]);
      add_values<Group == 1>(sum, probability, other_probability, values[1]);
      rescale<1>(sum, factor[1]);
      add_values<Group == 1>(sum + 64, probability, other_probability, values[1] + kTwoSlabs);
      wgmma_wait<0>();
      if (lane == 0) mbarrier_arrive(&s.empty[1][Group]);
      parity ^= 1;
    } while (++pair < pairs);

    float denominator[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float own = quad_sum(total[i]), other = quad_sum(other_total[i]);
      const float even = Group == 0 ? own : other, odd = Group == 0 ? other : own;
      denominator[i] = fmaf(even, factor[1][i], odd) + exp2f(p.args.sink[head + 8 * i] * kLog2e - top[i]);
    }
    store_output<256>(sum, denominator,
                      static_cast<uint16_t*>(p.args.o.data) + static_cast<int64_t>(q) * kHeads * kHeadDim, head,
                      256 * Group, p.args.rope.dim, s.rotation[turn]);
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
  wait_for_previous();
  let_next_start();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group >= 2) {
    registers_give<48>();
    if constexpr (Packed)
      expand(s, p, e, threadIdx.x - 256);
    else
      gather(s, p, e, threadIdx.x - 256);
  } else {
    registers_take<208>();
    if (group == 0)
      consume<0>(s, p, thread);
    else
      consume<1>(s, p, thread);
  }
}

size_t align(size_t bytes) { return (bytes + 255) / 256 * 256; }

// All but the addresses.
ExpandedRows layout(const AttentionProblem& p, KeySource source) {
  ExpandedRows e{};
  e.first_ring = 1 + p.in.rows;
  e.first_entry = e.first_ring + p.segments.count * p.args.ring.window;
  while (p.has_entries && 1 << e.page_shift < p.entries.page_rows) ++e.page_shift;
  const int64_t pages = p.has_entries ? int64_t{p.segments.count} * p.segments.page_stride : 0;
  if (source == KeySource::shared) e.count = e.first_entry + pages * p.entries.page_rows;
  return e;
}

}  // namespace

bool matrix_attention_takes(const AttentionProblem& p, int most_keys) {
  return p.args.heads == kHeads && p.args.head_dim == kHeadDim && p.args.rope.dim <= 64 && p.args.scale > 0 &&
         p.round_probabilities && most_keys <= kMostKeys;
}

MatrixAttentionPlan plan_matrix_attention(const AttentionProblem& p, int most_keys) {
  // Shared rows when each serves five keys on average, so that expanding them once saves time, and pages can be found.
  const int64_t rows = p.out.rows, page_rows = p.entries.page_rows;
  const bool pages = !p.has_entries || (p.entries.pages > 0 && (page_rows & (page_rows - 1)) == 0);
  constexpr int kFewQueries = 16;                 // two rounds of all multiprocessors
  constexpr int64_t kMostSharedRows = 512 << 10;  // half a gigabyte of scratch
  const int64_t count = layout(p, KeySource::shared).count;
  const bool shared = pages && count <= kMostSharedRows && 5 * count <= rows * most_keys;
  return plan_matrix_attention(p, most_keys,
                               rows <= kFewQueries && most_keys <= kMostFewKeys ? KeySource::few
                               : shared                                         ? KeySource::shared
                                                                                : KeySource::packed);
}

MatrixAttentionPlan plan_matrix_attention(const AttentionProblem& p, int most_keys, KeySource source) {
  if (source == KeySource::few) return {source, few_attention_bytes(p.out.rows, most_keys)};
  size_t bytes = align(sizeof(float2) * p.out.rows * (p.args.rope.dim / 2)) +
                 static_cast<size_t>(layout(p, source).count) * kExpandedBytes;
  if (source == KeySource::shared && p.has_entries) bytes += align(sizeof(int32_t) * p.entries.pages);
  return {source, bytes};
}

void matrix_attention(const AttentionProblem& p, const MatrixAttentionPlan& plan, int most_keys, void* scratch,
                      int multiprocessors, cudaStream_t stream) {
  if (plan.source == KeySource::few) return few_attention(p, most_keys, scratch, stream);
  ExpandedRows e = layout(p, plan.source);
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
  launch("matrix_attention", kernel,
         {.grid = dim3(std::min(p.out.rows, multiprocessors)),
          .block = dim3(kThreads),
          .shared = kBytes,
          .stream = stream,
          .early = true},
         p, e);
}

}  // namespace hadal::cuda
