// Sparse attention for few queries: eight or four blocks work on one query, so that its latency is a part of the products'.
// Block r multiplies the query with the r-th part of its keys and owns the r-th part of the output columns.
//
// Every sum is the one of the kernel for many queries: scores of a key do not depend on who computes them; the largest
// scores of all tiles, the probabilities, each as the registers that the reader needs, and their sums by 16 keys are
// exchanged through L2; and each block adds all tiles' values to its columns in the same order.
//
// Warpgroup 0 multiplies. Five more expand: first the block's keys, 64 channels of them a slab, and when these have been
// multiplied with the query, the other blocks' keys in the block's own columns, in the places of the slabs that are of no
// more use. (Copies from shared memory to shared memory of other blocks take longer: 72 KB a block 6,000 cycles.)
//
// Blocks of a query are no cluster: an H200 has room for 15 clusters of eight or 30 of four at a time, but for 16 and 33
// queries by eight and four.
#include <algorithm>
#include <type_traits>

#include "ops/cuda/errors.h"
#include "ops/cuda/exchange.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/sparse_attention/matrix.cuh"
#include "ops/sparse_attention/softmax.cuh"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 768, kExpanders = kThreads - 128;
constexpr int kUnit = 16;  // keys of a step of the second product

// Lists of up to 128 * Pairs keys, and Blocks blocks a query.
template <int Blocks, int Pairs>
struct Shape {
  static constexpr int kBlocks = Blocks, kUnits = 8 * Pairs, kTiles = 2 * Pairs;
  static constexpr int kOwnUnits = kUnits / Blocks, kOwnKeys = kOwnUnits * kUnit, kKeySlab = kOwnKeys * 128;
  static constexpr int kSlabs = 8 / Blocks;  // of the columns that a block owns
  // The own keys are expanded in rounds, of which each thread has 64 channels of one.
  static constexpr int kRounds = (8 * kOwnKeys + kExpanders - 1) / kExpanders, kRoundKeys = kOwnKeys / kRounds;
  static constexpr int first_tile(int block) { return block * kOwnUnits / 4; }
  static constexpr int last_tile(int block) { return (block * kOwnUnits + kOwnUnits - 1) / 4; }
  static constexpr int touched() {
    int most = 0;
    for (int b = 0; b < Blocks; ++b) most = std::max(most, last_tile(b) - first_tile(b) + 1);
    return most;
  }
  static constexpr int kTouched = touched();  // tiles that a block's keys may lie in
  // f of the place of a block's first unit in its first tile, as a constant.
  template <typename F>
  static __device__ __forceinline__ void with_offset(int rank, const F& f) {
    switch (rank * kOwnUnits % 4) {
      case 0: return f(std::integral_constant<int, 0>{});
      case 1: return f(std::integral_constant < int, kOwnUnits % 2 != 0 ? 1 : 0 > {});
      case 2: return f(std::integral_constant<int, 2>{});
      default: return f(std::integral_constant < int, kOwnUnits % 2 != 0 ? 3 : 0 > {});
    }
  }
};

template <typename S>
struct Shared {
  uint8_t query[8 * kHeads * 128];
  // Slabs of 64 channels: of the block's keys all eight; then, of each block's keys in order, those of the own columns.
  uint8_t keys[8 * S::kKeySlab];
  float2 rotation[32];
  uint32_t tag;
  uint64_t query_full, keys_full[S::kRounds], scores_done, values_full;
};

// What the blocks of a query tell each other. Every word carries a tag, of which the next launch has the next one, and every
// launch writes all words but `largest`. A probability has no sign: the signs of a thread's last pair are the tag's last two
// bits.
template <typename S>
struct Exchange {
  uint4 probability[S::kUnits][128];              // [unit][thread]
  uint64_t sum[S::kUnits][kHeads];                // of probabilities
  uint64_t top[S::kBlocks][S::kTouched][kHeads];  // largest scores of the tiles that a block's keys lie in
  uint64_t largest[S::kBlocks][kHeads];           // magnitudes of the output, of blocks with half a group of Q4
  unsigned long long tag;                         // the last one
};
__device__ __forceinline__ uint32_t tag_signs(uint32_t tag) { return (tag & 1) << 15 | (tag & 2) << 30; }
__device__ __forceinline__ void send_operand(uint4* to, uint4 v) {
  asm volatile(
      "{\n.reg .b128 v;\n.reg .b64 a, b;\nmov.b64 a, {%1, %2};\nmov.b64 b, {%3, %4};\nmov.b128 v, {a, b};\n"
      "st.relaxed.gpu.global.b128 [%0], v;\n}\n" ::"l"(to),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}
__device__ __forceinline__ uint4 peek_operand(const uint4* from) {
  uint4 v;
  asm volatile(
      "{\n.reg .b128 v;\n.reg .b64 a, b;\nld.relaxed.gpu.global.b128 v, [%4];\nmov.b128 {a, b}, v;\n"
      "mov.b64 {%0, %1}, a;\nmov.b64 {%2, %3}, b;\n}\n"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from)
      : "memory");
  return v;
}

// ---- expanding ----------------------------------------------------------------------------------------------------------
// 64 channels of a packed row.
struct Part {
  uint4 codes[4];  // of an entry the first two
  uint32_t scales;
};
__device__ __align__(16) const uint8_t kZeroEntry[kHeadDim / 2 + kHeadDim / 16] = {};

__device__ __forceinline__ Part load(uint64_t row, int slab) {
  const auto* at =
      reinterpret_cast<const uint8_t*>(row & ~kIsEntry);  // NOLINT(performance-no-int-to-ptr): a bit beside it
  const bool entry = (row & kIsEntry) != 0;
  const auto* codes = reinterpret_cast<const uint4*>(at + (entry ? 32 : 64) * slab);
  Part p;
  p.codes[0] = __ldg(codes);
  p.codes[1] = __ldg(codes + 1);
  p.codes[2] = p.codes[3] = make_uint4(0, 0, 0, 0);
  if (entry) {
    p.scales = __ldg(reinterpret_cast<const uint32_t*>(at + kHeadDim / 2 + 4 * slab));
  } else {
    p.codes[2] = __ldg(codes + 2);
    p.codes[3] = __ldg(codes + 3);
    p.scales = __ldg(reinterpret_cast<const uint16_t*>(at + kHeadDim + 2 * slab));
  }
  return p;
}

__device__ __forceinline__ void prefetch(uint64_t row, int slab) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a bit beside the address
  const auto* at = reinterpret_cast<const uint8_t*>(row & ~kIsEntry) + ((row & kIsEntry) != 0 ? 32 : 64) * slab;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// to: the 128 bytes of row r of a slab.
__device__ __forceinline__ void store(uint32_t to, int r, const Part& p, bool entry) {
  const uint32_t swizzle = (r & 7) << 4;
  const auto put = [&](uint32_t chunk, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + ((chunk << 4) ^ swizzle)), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
  };
  if (entry) {
    expand_entry(p.codes, p.scales, put);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) expand_window(p.codes[i], window_factor(p.scales >> (8 * (i / 2))), 2 * i, put);
  }
}

template <typename S>
__device__ __forceinline__ void expand(Shared<S>& s, const AttentionProblem& p, const KeyList& keys, int rank,
                                       int thread) {
  // Eight neighbouring threads have eight rows, which lie in different banks.
  const int slab = thread / 8 % 8, first = thread / 64 * 8 + thread % 8;
  const bool some = first < S::kRoundKeys, more = thread < S::kUnits * kUnit - S::kOwnKeys;
  const int other = thread < rank * S::kOwnKeys ? thread : thread + S::kOwnKeys;  // of the other blocks' keys
  static_assert(S::kUnits * kUnit - S::kOwnKeys <= kExpanders);
  const auto find = [&](int t, int likely) {
    const uint64_t row = packed_row(p, keys, t, likely);
    return row != 0 ? row : reinterpret_cast<uint64_t>(kZeroEntry) | kIsEntry;
  };
  int likely[S::kRounds + 1];
  uint64_t row[S::kRounds + 1];
#pragma unroll
  for (int i = 0; i < S::kRounds; ++i)
    likely[i] = some ? likely_entry(p, keys, rank * S::kOwnKeys + i * S::kRoundKeys + first) : 0;
  likely[S::kRounds] = more ? likely_entry(p, keys, other) : 0;
#pragma unroll
  for (int i = 0; i < S::kRounds; ++i)
    row[i] = some ? find(rank * S::kOwnKeys + i * S::kRoundKeys + first, likely[i]) : 0;
  row[S::kRounds] = more ? find(other, likely[S::kRounds]) : 0;

  // Registers suffice for one part at a time; the next one's bytes are in L2 by then.
#pragma unroll
  for (int i = 1; i < S::kRounds; ++i)
    if (some) prefetch(row[i], slab);
#pragma unroll
  for (int i = 0; i < S::kRounds; ++i) {
    if (some) {
      const int r = i * S::kRoundKeys + first;
      store(smem_address(s.keys) + slab * S::kKeySlab + r * 128, r, load(row[i], slab), (row[i] & kIsEntry) != 0);
    }
    mbarrier_arrive(&s.keys_full[i]);  // readers fence
  }

  if (more) {
    const bool entry = (row[S::kRounds] & kIsEntry) != 0;
    const uint32_t to = smem_address(s.keys) + other / S::kOwnKeys * S::kSlabs * S::kKeySlab;
    const int r = other % S::kOwnKeys;
    Part values = load(row[S::kRounds], rank * S::kSlabs);
    mbarrier_wait(&s.scores_done, 0);
    store(to + r * 128, r, values, entry);
    if constexpr (S::kSlabs > 1) {
      values = load(row[S::kRounds], rank * S::kSlabs + 1);
      store(to + S::kKeySlab + r * 128, r, values, entry);
    }
    static_assert(S::kSlabs <= 2);
  }
  mbarrier_arrive(&s.values_full);
}

// ---- products -----------------------------------------------------------------------------------------------------------
// Count words, at(i) each, once all of them carry the tag.
template <int Count, typename At>
__device__ __forceinline__ void receive(float* to, uint32_t tag, const At& at) {
  uint64_t word[Count];
  bool late;
  do {
    late = false;
#pragma unroll
    for (int i = 0; i < Count; ++i) word[i] = peek(at(i));
#pragma unroll
    for (int i = 0; i < Count; ++i) late |= !carries(word[i], tag);
  } while (late);
#pragma unroll
  for (int i = 0; i < Count; ++i) to[i] = value_of(word[i]);
}

template <typename S>
__device__ __forceinline__ void attend(Shared<S>& s, const AttentionProblem& p, Exchange<S>& exchange, int query,
                                       int count, int rank, int thread) {
  constexpr int kBlocks = S::kBlocks, kColumns = 64 * S::kSlabs, kRoundUnits = S::kRoundKeys / kUnit;
  const int warp = thread >> 5, lane = thread & 31, head = warp * 16 + (lane >> 2);
  const int first_unit = rank * S::kOwnUnits, first_tile = first_unit / 4;
  const float scale = p.args.scale * kLog2e / kStoredScale;
  named_barrier(1, 128);
  const uint32_t tag = s.tag;

  const float sink[2] = {__ldg(&p.args.sink[head]), __ldg(&p.args.sink[head + 8])};
  float score[8 * S::kOwnUnits] = {};
  mbarrier_wait(&s.query_full, 0);
#pragma unroll
  for (int i = 0; i < S::kRounds; ++i) {
    mbarrier_wait(&s.keys_full[i], 0);
    fence_async_shared();
    wgmma_fence();
    const uint64_t a = k_major_descriptor(smem_address(s.query)),
                   b = k_major_descriptor(smem_address(s.keys) + i * S::kRoundKeys * 128);
#pragma unroll
    for (int k = 0; k < 32; ++k)
      Wgmma<S::kRoundKeys>::ss(score + 8 * kRoundUnits * i, a + ((k >> 2) * kHeads * 128 + (k & 3) * 32) / 16,
                               b + ((k >> 2) * S::kKeySlab + (k & 3) * 32) / 16, 1);
    wgmma_commit();
  }
  wgmma_wait<0>();
  if (lane == 0) mbarrier_arrive(&s.scores_done);

  const uint32_t signs = tag_signs(tag);
  if (count < (first_unit + S::kOwnUnits) * kUnit) {
#pragma unroll
    for (int k = 0; k < S::kOwnUnits; ++k)
      mask_scores(score + 8 * k, count - (first_unit + k) * kUnit - 2 * (lane & 3));
  }
  float largest[S::kTouched][2];  // [tile - first_tile][row]
#pragma unroll
  for (int j = 0; j < S::kTouched; ++j) largest[j][0] = largest[j][1] = -INFINITY;
  S::with_offset(rank, [&](auto offset) {
#pragma unroll
    for (int k = 0; k < S::kOwnUnits; ++k) largest_scores(score + 8 * k, largest[(offset.value + k) / 4]);
  });
#pragma unroll
  for (int i = 0; i < 2 * S::kTouched; ++i) {
    float& v = largest[i >> 1][i & 1];
    v = quad_max(v) * scale;
    if ((lane & 3) == 0) send(&exchange.top[rank][i >> 1][head + 8 * (i & 1)], v, tag);
  }
  float others[kBlocks][S::kTouched][2];
  receive<2 * S::kTouched * kBlocks>(
      &others[0][0][0], tag, [&](int i) { return &exchange.top[0][0][0] + i / 2 * kHeads + head + 8 * (i & 1); });

  float factor[S::kTiles][2], own_top[S::kTouched][2], top[2] = {kNoTop, kNoTop};
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float fresh = top[i];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
#pragma unroll
        for (int j = 0; j < S::kTouched; ++j)
          if (S::first_tile(block) + j == tile && S::last_tile(block) >= tile)
            fresh = fmaxf(fresh, others[block][j][i]);
      factor[tile][i] = exp2_fast(top[i] - fresh);
      top[i] = fresh;
#pragma unroll
      for (int j = 0; j < S::kTouched; ++j)
        if (tile == first_tile + j) own_top[j][i] = fresh;
    }
  }
  S::with_offset(rank, [&](auto offset) {
#pragma unroll
    for (int k = 0; k < S::kOwnUnits; ++k)
#pragma unroll
      for (int i = 0; i < 8; ++i)
        score[8 * k + i] = fmaf(score[8 * k + i], scale, -own_top[(offset.value + k) / 4][i >> 1 & 1]);
  });
  float sums[2][(S::kOwnUnits + 3) / 4 * 4] = {};  // of the lane's probabilities, by row and unit
#pragma unroll
  for (int k = 0; k < S::kOwnUnits; ++k) {
    const int unit = first_unit + k;
    uint32_t operand[4];
    float sum[2];
    probabilities(score + 8 * k, operand, sum);
    send_operand(&exchange.probability[unit][thread],
                 make_uint4(operand[0], operand[1], operand[2], operand[3] ^ signs));
    sums[0][k] = sum[0], sums[1][k] = sum[1];
  }
#pragma unroll
  for (int k = 0; k < S::kOwnUnits; k += 4)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float four[4] = {sums[i][k], sums[i][k + 1], sums[i][k + 2], sums[i][k + 3]};
      const float own = quad_sum_own(four);
      const int unit = k + (lane & 3);
      if (unit < S::kOwnUnits) send(&exchange.sum[first_unit + unit][head + 8 * i], own, tag);
    }

  constexpr int kAhead = std::min(S::kTiles, S::kSlabs == 1 ? 6 : 4);  // tiles that are read ahead
  uint4 probability[S::kUnits];
  // A tile's units, whether or not they are there.
  const auto ask = [&](int tile) {
#pragma unroll
    for (int k = 0; k < 4; ++k) probability[4 * tile + k] = peek_operand(&exchange.probability[4 * tile + k][thread]);
  };
  const auto late = [&](int tile) {
    uint32_t wrong = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) wrong |= (probability[4 * tile + k].w ^ signs) & 0x80008000u;
    return wrong != 0;
  };
#pragma unroll
  for (int tile = 0; tile < kAhead; ++tile) ask(tile);
  {  // The last units of all blocks: then everything is there, but what was asked for too early is asked for again.
    bool missing;
    do {
      uint32_t last[kBlocks], wrong = 0;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
        last[b] = peek_operand(&exchange.probability[(b + 1) * S::kOwnUnits - 1][thread]).w;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) wrong |= (last[b] ^ signs) & 0x80008000u;
      missing = wrong != 0;
    } while (missing);
  }
#pragma unroll
  for (int tile = 0; tile < kAhead; ++tile)
    if (late(tile)) ask(tile);
  float part[S::kTiles][2];  // sum of unit `lane % 4` of a tile
  receive<2 * S::kTiles>(&part[0][0], tag,
                         [&](int i) { return &exchange.sum[(i >> 1) * 4 + (lane & 3)][head + 8 * (i & 1)]; });
  if (rank == 0 && thread == 0) exchange.tag = tag;  // thread 0 of every block has sent something, and so had read it
  mbarrier_wait(&s.values_full, 0);
  fence_async_shared();

  float denominator[2];
  const auto divide_by = [&] {
    const int pairs = max((count + 127) / 128, 1);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float even = 0, odd = 0, last = 1;
#pragma unroll
      for (int j = 0; j < S::kTiles / 2; ++j) {
        if (j < pairs) {
          if (j > 0) even *= last;
          even = fmaf(even, factor[2 * j][i], part[2 * j][i]);
          odd = fmaf(odd * factor[2 * j][i], factor[2 * j + 1][i], part[2 * j + 1][i]);
          last = factor[2 * j + 1][i];
        }
      }
      denominator[i] = fmaf(quad_sum(even), last, quad_sum(odd)) + exp2f(sink[i] * kLog2e - top[i]);
    }
  };

  // In two parts, so that one is moved to the new maximum while the matrix unit adds to the other.
  constexpr int kPart = kColumns / 2;
  constexpr uint32_t kPartBytes = S::kSlabs == 1 ? 2 * kPart : S::kKeySlab;
  float sum[kColumns / 2] = {};
  const uint64_t values = mn_major_descriptor(smem_address(s.keys), 0);
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile) {
    if (tile > 0) wgmma_wait<1>();
    while (late(tile)) ask(tile);
#pragma unroll
    for (int k = 4 * tile; k < 4 * tile + 4; ++k) {
      probability[k].w ^= signs;
      asm volatile("" : "+r"(probability[k].w)::"memory");
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (tile > 0 && half > 0) wgmma_wait<1>();
#pragma unroll
      for (int j = kPart / 2 * half; j < kPart / 2 * (half + 1); ++j) {
        sum[j] *= factor[tile][j >> 1 & 1];
        asm volatile("" : "+f"(sum[j])::"memory");
      }
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int unit = 4 * tile + k;
        const uint64_t from =
            (unit / S::kOwnUnits * S::kSlabs * S::kKeySlab + half * kPartBytes + unit % S::kOwnUnits * 2048) / 16;
        const uint32_t a[4] = {probability[unit].x, probability[unit].y, probability[unit].z, probability[unit].w};
        Wgmma<kPart>::template rs<1>(sum + kPart / 2 * half, a, values + from, 1);
      }
      wgmma_commit();
    }
    if (tile + kAhead < S::kTiles) ask(tile + kAhead);
    if (tile == 0) divide_by();
  }
  wgmma_wait<0>();

  const auto meet_other_half = [&](float(&largest)[2]) {
    if constexpr (kColumns == 64) {
      float other[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if ((lane & 3) == 0) send(&exchange.largest[rank][head + 8 * i], largest[i], tag);
      receive<2>(other, tag, [&](int i) { return &exchange.largest[rank ^ 1][head + 8 * i]; });
#pragma unroll
      for (int i = 0; i < 2; ++i) largest[i] = fmaxf(largest[i], other[i]);
    }
  };
  store_output<kColumns>(sum, denominator, p, query, head, kColumns * rank, p.args.rope.dim, s.rotation, s.query,
                         meet_other_half);
}

template <int Blocks, int Pairs>
__global__ void __launch_bounds__(kThreads, 1)
    few_kernel(const __grid_constant__ AttentionProblem p, Exchange<Shape<Blocks, Pairs>>* exchange, int first) {
  using S = Shape<Blocks, Pairs>;
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<Shared<S>*>(shared_bytes);
  const int query = first + blockIdx.x / Blocks, rank = blockIdx.x % Blocks;
  if (threadIdx.x == 0) {
    mbarrier_init(&s.query_full, 128);
    for (auto& full : s.keys_full) mbarrier_init(&full, kExpanders);
    mbarrier_init(&s.scores_done, 4);
    mbarrier_init(&s.values_full, kExpanders);
    mbarrier_init_fence();
  }
  KeyList keys = window_keys(p.args, query, p.in, p.out, p.segments);
  const int step_row = p.out.step_row[query];
  if (rank == Blocks - 1 && threadIdx.x < p.args.rope.dim / 2)
    s.rotation[threadIdx.x] = rotation(p.args.rope, threadIdx.x, p.out.position[query]);
  if (threadIdx.x >= 128 && threadIdx.x < 256) prefetch_ring(p, keys, threadIdx.x - 128);
  __syncthreads();
  wait_for_previous();
  let_next_start();
  if (threadIdx.x < 128) {  // the others look for keys
    if (threadIdx.x == 0) s.tag = static_cast<uint32_t>(__ldcg(&exchange[query - first].tag)) + 1;
    const uint8_t* from =
        static_cast<const uint8_t*>(p.args.q.data) + static_cast<int64_t>(query) * kHeads * kHeadDim * 2;
    const uint32_t to = smem_address(s.query);
#pragma unroll 8
    for (int i = threadIdx.x; i < kHeads * kHeadDim / 8; i += 128) {
      const int head = i >> 6, chunk = i & 63;
      copy16_async(to + (chunk >> 3) * kHeads * 128 + head * 128 + (((chunk & 7) ^ (head & 7)) << 4), from + i * 16);
    }
    mbarrier_arrive_after_copies(&s.query_full);
  }
  if (p.has_entries) add_entries(keys, step_row, p.selection);
  // 80 registers a thread at entry.
  static_assert(128 * 240 + kExpanders * 48 <= 80 * kThreads);
  if (threadIdx.x >= 128) {
    registers_give<48>();
    expand(s, p, keys, rank, threadIdx.x - 128);
  } else {
    registers_take<240>();
    attend(s, p, exchange[query - first], query, keys.count(), rank, threadIdx.x);
  }
}

template <int Blocks, int Pairs>
void launch_few(const AttentionProblem& p, void* lasting, int multiprocessors, cudaStream_t stream) {
  using S = Shape<Blocks, Pairs>;
  constexpr int kBytes = sizeof(Shared<S>);
  static_assert(kBytes <= 227 * 1024);
  const int together = multiprocessors / Blocks;
  for (int first = 0; first < p.out.rows; first += together)
    launch("few_attention", few_kernel<Blocks, Pairs>,
           {.grid = dim3(std::min(together, p.out.rows - first) * Blocks),
            .block = dim3(kThreads),
            .shared = kBytes,
            .stream = stream,
            .cooperative = true,
            .early = true},
           p, static_cast<Exchange<S>*>(lasting), first);
}

}  // namespace

// The four kernels' exchanges lie behind each other: a word's tag is that of its kernel.
size_t few_attention_lasting_bytes(int multiprocessors) {
  return multiprocessors / 8 * (sizeof(Exchange<Shape<8, 1>>) + sizeof(Exchange<Shape<8, 5>>)) +
         multiprocessors / 4 * (sizeof(Exchange<Shape<4, 1>>) + sizeof(Exchange<Shape<4, 5>>));
}

void few_attention(const AttentionProblem& p, int blocks, int most_keys, void* lasting, int multiprocessors,
                   cudaStream_t stream) {
  HADAL_CUDA_CHECK(most_keys <= kMostFewKeys && (blocks == 8 || blocks == 4) && multiprocessors >= 8);
  auto* at = static_cast<uint8_t*>(lasting);
  const auto run = [&](auto shape, auto run_shape) {
    if (blocks == shape.kBlocks && (most_keys <= 128) == (shape.kUnits == 8)) run_shape();
    at += multiprocessors / shape.kBlocks * sizeof(Exchange<decltype(shape)>);
  };
  run(Shape<8, 1>{}, [&] { launch_few<8, 1>(p, at, multiprocessors, stream); });
  run(Shape<8, 5>{}, [&] { launch_few<8, 5>(p, at, multiprocessors, stream); });
  run(Shape<4, 1>{}, [&] { launch_few<4, 1>(p, at, multiprocessors, stream); });
  run(Shape<4, 5>{}, [&] { launch_few<4, 5>(p, at, multiprocessors, stream); });
}

}  // namespace hadal::cuda
