// Sparse attention of layers without entries, many queries: neighbouring queries of a request share all rows of their windows
// but one, so a block has a run of queries and expands their rows once, into shared memory. A query's tiles begin where its
// window does.
#include <algorithm>

#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/sparse_attention/consume.cuh"
#include "ops/sparse_attention/matrix.cuh"
#include "ops/sparse_attention/query.cuh"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 512, kProducers = 256;
constexpr int kFirstKeys = 8;   // named barrier of all threads
constexpr int kMostRows = 144;  // of a group of queries: two tiles, and a row for each query but the first

struct Shared {
  static constexpr int kKeySlab = kMostRows * 128, kTileStride = kTileKeys * 128;
  static constexpr bool kWindow = true;
  uint8_t query[8 * kSlabBytes];
  uint8_t tile[8 * kKeySlab];
  uint8_t probability[2][kSlabBytes];
  float sink[2][kHeads], top[2][kHeads], total[2][kHeads];
  float2 rotation[4][32];
  KeySpan span[2];
  uint64_t query_full, query_empty;
  uint64_t full[2][2], empty[1][1];  // of the last tile's, also the rows behind it
};

// Half `half` of the rows of a group, by 256 threads; a thread has 64 channels of a row at a time. rows: how many there are;
// zeros behind them.
__device__ __forceinline__ void expand_half(Shared& s, const AttentionProblem& p, const KeyList& keys, int rows,
                                            int tile, int half, int thread) {
  const int slab = half * 4 + ((thread >> 3) & 3);
  const auto expand_row = [&](int r) {
    const uint32_t to = smem_address(s.tile) + slab * Shared::kKeySlab + r * 128, swizzle = (r & 7) << 4;
    const auto put = [&](uint32_t chunk, uint4 v) {
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + ((chunk << 4) ^ swizzle)), "r"(v.x), "r"(v.y),
                   "r"(v.z), "r"(v.w)
                   : "memory");
    };
    if (r >= rows) {
#pragma unroll
      for (int i = 0; i < 8; ++i) put(i, make_uint4(0, 0, 0, 0));
      return;
    }
    const uint8_t* row = window_row(p.args, keys, r);
    const auto* codes = reinterpret_cast<const uint4*>(row + 64 * slab);
    uint4 code[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) code[i] = __ldg(codes + i);
    const uint32_t scales = __ldg(reinterpret_cast<const uint16_t*>(row + kHeadDim + 2 * slab));
#pragma unroll
    for (int i = 0; i < 4; ++i) expand_window(code[i], window_factor(scales >> (8 * (i / 2))), 2 * i, put);
  };
  const int r = tile * kTileKeys + (thread >> 5) * 8 + (thread & 7);
  expand_row(r);
  if (tile == 1 && r < kMostRows - kTileKeys) expand_row(r + kTileKeys);
}

// A group of queries of one segment, with rows for all of them.
struct Group {
  KeyList keys;  // the first query's
  int end, rows;
};
__device__ __forceinline__ Group find_group(const AttentionProblem& p, int query, int end) {
  Group g;
  g.keys = window_keys(p.args, query, p.in, p.out, p.segments);
  g.end = min(min(end, p.out.seg_begin[p.out.segment[query] + 1]), query + kMostRows - g.keys.window_count() + 1);
  g.rows = g.keys.window_count() + g.end - 1 - query;
  return g;
}

// group: the first one, of which all threads expand.
__device__ __forceinline__ void produce(Shared& s, const AttentionProblem& p, Group group, int begin, int end,
                                        int thread) {
  uint32_t query_parity = 1, keys_parity = 1;
  int turn = 0;
  for (int query = begin; query < end; query = group.end) {
    if (query != begin) group = find_group(p, query, end);
    const int position = p.out.position[query], segment = p.out.segment[query];
    const int floor = p.args.floor == nullptr ? 0 : max(p.args.floor[segment], 0);
    const auto bring_query = [&](int at) {
      mbarrier_wait(&s.query_empty, query_parity);  // nobody reads what the query before the last one left
      query_parity ^= 1;
      load_query(s.query, &s.query_full, p, at, thread);
      const int here = position + at - query, first = max(max(here - p.args.ring.window + 1, 0), floor);
      if (thread == 0)
        s.span[turn] = {here + 1 - first, first - group.keys.ring_first, at == query, at + 1 == group.end};
      mbarrier_arrive(&s.query_full);
      turn ^= 1;
    };
    bring_query(query);
    mbarrier_wait(&s.empty[0][0], keys_parity);
    keys_parity ^= 1;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      // Of the first group, the others have the second halves.
      if (query != begin || i % 2 == 0) expand_half(s, p, group.keys, group.rows, i / 2, i % 2, thread);
      if (query == begin && i == 2) named_barrier(kFirstKeys, kThreads);
      if (query != begin) mbarrier_arrive(&s.full[i / 2][i % 2]);  // readers fence
    }
    if (query == begin)
      for (auto& tile : s.full)
        for (auto& half : tile) mbarrier_arrive(&half);
    for (int at = query + 1; at < group.end; ++at) bring_query(at);
  }
}

__global__ void __launch_bounds__(kThreads, 1) window_kernel(const __grid_constant__ AttentionProblem p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& s = *reinterpret_cast<Shared*>(shared_bytes);
  if (threadIdx.x == 0) {
    mbarrier_init(&s.query_full, 2 * kProducers);  // of copies, and of what says which keys it has
    mbarrier_init(&s.query_empty, 8);
    for (int i = 0; i < 4; ++i) mbarrier_init(&s.full[i >> 1][i & 1], kProducers);
    mbarrier_init(&s.empty[0][0], 8);
    mbarrier_init_fence();
  }
  __syncthreads();
  let_next_start();
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
  const auto share = [&](int block) {
    return static_cast<int>(static_cast<int64_t>(p.out.rows) * block / static_cast<int>(gridDim.x));
  };
  const int begin = share(blockIdx.x), end = share(blockIdx.x + 1);
  const Group group = find_group(p, begin, end);
  prefetch_ring(p, group.keys, threadIdx.x);
  wait_for_previous();
  if (warpgroup >= 2) {
    registers_give<40>();
    produce(s, p, group, begin, end, threadIdx.x - 256);
  } else {
    expand_half(s, p, group.keys, group.rows, 0, 1, threadIdx.x);
    expand_half(s, p, group.keys, group.rows, 1, 1, threadIdx.x);
    named_barrier(kFirstKeys, kThreads);
    registers_take<216>();
    if (warpgroup == 0)
      consume<0>(s, p, begin, end, 1, thread);
    else
      consume<1>(s, p, begin, end, 1, thread);
  }
}

}  // namespace

bool window_attention_takes(const AttentionProblem& p) {
  return !p.has_entries && !p.args.bidirectional && p.args.ring.window <= 2 * kTileKeys;
}

void window_attention(const AttentionProblem& p, int multiprocessors, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared);
  static_assert(kBytes <= 227 * 1024);
  launch("window_attention", window_kernel,
         {.grid = dim3(std::min(p.out.rows, multiprocessors)),
          .block = dim3(kThreads),
          .shared = kBytes,
          .stream = stream,
          .early = true},
         p);
}

}  // namespace hadal::cuda
