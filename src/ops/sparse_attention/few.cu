// Sparse attention for few queries: a cluster of eight blocks works on one query, so that its latency is an eighth of the
// products'. Block r multiplies the query with the r-th eighth of its keys and owns output columns 64 r .. 64 r + 63.
//
// Every sum is the one of the kernel for many queries: scores of a key do not depend on who computes them; largest scores
// of all tiles are exchanged through the cluster's shared memory; probabilities and their sums by 16 keys through L2, each
// as the registers that the reader needs; and each block adds all tiles' values to its columns in the same order.
//
// Warpgroup 0 multiplies. Five more expand the block's keys. 64 channels of them are a slab, which is a value tile of the
// block that owns these columns: slabs are copied to them from shared memory to shared memory.
#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/sparse_attention/matrix.cuh"
#include "ops/sparse_attention/softmax.cuh"

namespace hadal::cuda {
namespace {

constexpr int kBlocks = 8, kColumns = kHeadDim / kBlocks;
constexpr int kThreads = 768, kExpanders = kThreads - 128;
constexpr int kUnit = 16;  // keys of a step of the second product

// Lists of up to 128 * Pairs keys: Pairs units of 16 keys a block.
template <int Pairs>
struct Shared {
  static constexpr int kUnits = Pairs * kBlocks, kTiles = 2 * Pairs, kOwnKeys = Pairs * kUnit;
  static constexpr int kKeySlab = kOwnKeys * 128;
  uint8_t query[8 * kHeads * 128];
  uint8_t keys[8 * kKeySlab];                // slabs of 64 channels, as the values below
  uint8_t values[(kBlocks - 1) * kKeySlab];  // of the other blocks, in order; the own ones are among the keys
  float top[kBlocks][2][kHeads];             // largest scores of the two tiles that a block's keys may touch
  float2 rotation[32];
  uint64_t query_full, keys_full, values_full, tops_full, probabilities_full;
};

// What the blocks of a query tell each other through L2.
template <int Pairs>
struct Exchange {
  uint4 probability[Shared<Pairs>::kUnits][128];  // [unit][thread]
  float sum[Shared<Pairs>::kUnits][kHeads];
};

// ---- clusters -----------------------------------------------------------------------------------------------------------
__device__ __forceinline__ uint32_t block_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ uint32_t address_in(const void* shared, uint32_t rank) {
  uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(smem_address(shared)), "r"(rank));
  return r;
}
// A store that counts its four bytes on a barrier of the same block.
__device__ __forceinline__ void store_in(uint32_t address, float v, uint32_t bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address),
               "r"(__float_as_uint(v)), "r"(bar)
               : "memory");
}
// Copies bytes to where they lie in another block, and counts them there.
__device__ __forceinline__ void copy_in(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "r"(smem_address(from)), "r"(bytes), "r"(bar)
               : "memory");
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// This warp's earlier writes are there for whoever sees the arrival, which every block of the cluster gets.
__device__ __forceinline__ void arrive_in_all(uint64_t* bar) {
  asm volatile("fence.acq_rel.cluster;" ::: "memory");
  __syncwarp();
  const uint32_t lane = threadIdx.x % 32;
  if (lane < kBlocks)
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address_in(bar, lane))
                 : "memory");
}
__device__ __forceinline__ void wait_for_all(uint64_t* bar) {
  uint32_t done;
  do {
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n selp.b32 %0, 1, 0, "
        "p;\n}\n"
        : "=r"(done)
        : "r"(smem_address(bar))
        : "memory");
  } while (done == 0);
}

// ---- expanding ----------------------------------------------------------------------------------------------------------
// 64 channels of a packed row.
struct Part {
  uint4 codes[4];  // of an entry the first two
  uint32_t scales;
};
__device__ __align__(16) const uint8_t kZeroEntry[kHeadDim / 2 + kHeadDim / 16] = {};

__device__ __forceinline__ Part load(uint64_t row, int slab) {
  const auto* at = reinterpret_cast<const uint8_t*>(row & ~kIsEntry);
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

template <int Pairs>
__device__ __forceinline__ void expand(Shared<Pairs>& s, const AttentionProblem& p, const KeyList& keys, uint32_t rank,
                                       int thread) {
  using S = Shared<Pairs>;
  static_assert(8 * S::kOwnKeys <= kExpanders);
  if (thread < 8 * S::kOwnKeys) {
    // Eight neighbouring threads have eight rows, which lie in different banks.
    const int r = thread / 64 * 8 + thread % 8, slab = thread / 8 % 8, t = static_cast<int>(rank) * S::kOwnKeys + r;
    const uint64_t row = t < keys.count() ? packed_row(p, keys, t) : reinterpret_cast<uint64_t>(kZeroEntry) | kIsEntry;
    store(smem_address(s.keys) + slab * S::kKeySlab + r * 128, r, load(row, slab), (row & kIsEntry) != 0);
    fence_async_shared();
  }
  mbarrier_arrive(&s.keys_full);
  cluster_wait();  // the other blocks run
  const uint32_t block = thread;
  if (block < kBlocks && block != rank) {
    mbarrier_wait(&s.keys_full, 0);
    copy_in(address_in(s.values + (rank < block ? rank : rank - 1) * S::kKeySlab, block), s.keys + block * S::kKeySlab,
            S::kKeySlab, address_in(&s.values_full, block));
  }
  __syncwarp();
}

// ---- products -----------------------------------------------------------------------------------------------------------
__device__ __forceinline__ uint4 load_fresh(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}

template <int Pairs>
__device__ __forceinline__ void attend(Shared<Pairs>& s, const AttentionProblem& p, Exchange<Pairs>& exchange,
                                       int query, int count, int rank, int thread) {
  using S = Shared<Pairs>;
  const int warp = thread >> 5, lane = thread & 31, head = warp * 16 + (lane >> 2);
  const int first_unit = rank * Pairs, first_tile = first_unit / 4;
  const float scale = p.args.scale * kLog2e / kStoredScale;
  if (rank == kBlocks - 1 && thread < p.args.rope.dim / 2)
    s.rotation[thread] = rotation(p.args.rope, thread, p.out.position[query]);
  named_barrier(1, 128);

  const float sink[2] = {__ldg(&p.args.sink[head]), __ldg(&p.args.sink[head + 8])};
  float score[8 * Pairs] = {};
  mbarrier_wait(&s.query_full, 0);
  mbarrier_wait(&s.keys_full, 0);
  fence_async_shared();
  wgmma_fence();
  {
    const uint64_t a = k_major_descriptor(smem_address(s.query)), b = k_major_descriptor(smem_address(s.keys));
#pragma unroll
    for (int k = 0; k < 32; ++k)
      Wgmma<kUnit * Pairs>::ss(score, a + ((k >> 2) * kHeads * 128 + (k & 3) * 32) / 16,
                               b + ((k >> 2) * S::kKeySlab + (k & 3) * 32) / 16, 1);
  }
  wgmma_commit();
  wgmma_wait<0>();

  float largest[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};  // [tile - first_tile][row]
#pragma unroll
  for (int k = 0; k < Pairs; ++k) {
    float most[2] = {-INFINITY, -INFINITY};
    mask_scores(score + 8 * k, count - (first_unit + k) * kUnit - 2 * (lane & 3));
    largest_scores(score + 8 * k, most);
    const bool second = (first_unit + k) / 4 != first_tile;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest[0][i] = fmaxf(largest[0][i], second ? -INFINITY : most[i]);
      largest[1][i] = fmaxf(largest[1][i], second ? most[i] : -INFINITY);
    }
  }
  cluster_wait();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float v = quad_max(largest[i >> 1][i & 1]) * scale;
    const float* at = &s.top[rank][i >> 1][head + 8 * (i & 1)];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t block = (lane & 3) + 4 * half;
      store_in(address_in(at, block), v, address_in(&s.tops_full, block));
    }
  }
  wait_for_all(&s.tops_full);

  float factor[S::kTiles][2], own_top[2][2], top[2] = {kNoTop, kNoTop};
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float fresh = top[i];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (block * Pairs / 4 + j == tile && (block * Pairs + Pairs - 1) / 4 >= tile)
            fresh = fmaxf(fresh, s.top[block][j][head + 8 * i]);
      factor[tile][i] = exp2_fast(top[i] - fresh);
      top[i] = fresh;
      if (tile == first_tile) own_top[0][i] = own_top[1][i] = fresh;
      if (tile == first_tile + 1) own_top[1][i] = fresh;
    }
  }
#pragma unroll
  for (int k = 0; k < Pairs; ++k) {
    const int unit = first_unit + k;
    const bool second = unit / 4 != first_tile;
    const float of[2] = {second ? own_top[1][0] : own_top[0][0], second ? own_top[1][1] : own_top[0][1]};
    uint32_t operand[4];
    float sum[2];
    probabilities(score + 8 * k, scale, of, operand, sum);
    exchange.probability[unit][thread] = make_uint4(operand[0], operand[1], operand[2], operand[3]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float all = quad_sum(sum[i]);
      if ((lane & 3) == 0) exchange.sum[unit][head + 8 * i] = all;
    }
  }
  arrive_in_all(&s.probabilities_full);
  mbarrier_wait(&s.values_full, 0);
  cluster_arrive();  // nothing of other blocks is used any more
  wait_for_all(&s.probabilities_full);

  uint4 probability[S::kUnits];
  float part[S::kTiles][2];  // sum of unit `lane % 4` of a tile
#pragma unroll
  for (int unit = 0; unit < S::kUnits; ++unit) probability[unit] = load_fresh(&exchange.probability[unit][thread]);
#pragma unroll
  for (int i = 0; i < 2 * S::kTiles; ++i)
    part[i >> 1][i & 1] = __ldcg(&exchange.sum[(i >> 1) * 4 + (lane & 3)][head + 8 * (i & 1)]);

  float denominator[2];
  const auto divide_by = [&] {
    const int pairs = max((count + 127) / 128, 1);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float even = 0, odd = 0, last = 1;
#pragma unroll
      for (int j = 0; j < Pairs; ++j) {
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

  float sum[32] = {};
  const uint64_t own = mn_major_descriptor(smem_address(s.keys) + rank * S::kKeySlab, 0) - first_unit * 128,
                 before = mn_major_descriptor(smem_address(s.values), 0), after = before - Pairs * 128;
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile) {
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      sum[j] *= factor[tile][j >> 1 & 1];
      asm volatile("" : "+f"(sum[j])::"memory");
    }
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int unit = 4 * tile + k;
      const uint64_t values = (unit < first_unit ? before : unit < first_unit + Pairs ? own : after) + unit * 128;
      const uint32_t a[4] = {probability[unit].x, probability[unit].y, probability[unit].z, probability[unit].w};
      Wgmma<kColumns>::template rs<1>(sum, a, values, 1);
    }
    wgmma_commit();
    if (tile == 0) divide_by();
    wgmma_wait<0>();
  }

  store_output<kColumns>(sum, denominator,
                         static_cast<uint16_t*>(p.args.o.data) + static_cast<int64_t>(query) * kHeads * kHeadDim, head,
                         kColumns * rank, p.args.rope.dim, s.rotation);
  cluster_wait();  // nor of this one
}

template <int Pairs>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    few_kernel(const __grid_constant__ AttentionProblem p, Exchange<Pairs>* exchange) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<Shared<Pairs>*>(shared_bytes);
  const int query = blockIdx.x / kBlocks, rank = static_cast<int>(block_rank());
  if (threadIdx.x == 0) {
    mbarrier_init(&s.query_full, 128);
    mbarrier_init(&s.keys_full, kExpanders);
    mbarrier_init(&s.values_full, 1);
    mbarrier_init(&s.tops_full, 1);
    mbarrier_init(&s.probabilities_full, 4 * kBlocks);
    mbarrier_init_fence();
    mbarrier_arrive_expect(&s.tops_full, sizeof s.top);
    mbarrier_arrive_expect(&s.values_full, sizeof s.values);
  }
  __syncthreads();
  cluster_arrive();
  wait_for_previous();
  let_next_start();
  if (threadIdx.x < 128) {  // the others look for keys
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
  const KeyList keys =
      key_list(p.args, query, p.in, p.out, p.segments, p.has_entries ? &p.entries : nullptr, &p.selection);
  // 80 registers a thread at entry.
  static_assert(128 * 200 + kExpanders * 56 <= 80 * kThreads);
  if (threadIdx.x >= 128) {
    registers_give<56>();
    expand(s, p, keys, rank, threadIdx.x - 128);
    cluster_arrive();
    cluster_wait();
  } else {
    registers_take<200>();
    attend(s, p, exchange[query], query, keys.count(), rank, threadIdx.x);
  }
}

template <int Pairs>
void launch_few(const AttentionProblem& p, void* scratch, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared<Pairs>);
  static_assert(kBytes <= 227 * 1024);
  static const cudaError_t prepared =
      cudaFuncSetAttribute(few_kernel<Pairs>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  HADAL_CUDA(prepared);
  launch(
      "few_attention", few_kernel<Pairs>,
      {.grid = dim3(p.out.rows * kBlocks), .block = dim3(kThreads), .shared = kBytes, .stream = stream, .early = true},
      p, static_cast<Exchange<Pairs>*>(scratch));
}

}  // namespace

size_t few_attention_bytes(int queries, int most_keys) {
  return queries * (most_keys <= 128 ? sizeof(Exchange<1>) : sizeof(Exchange<5>));
}

void few_attention(const AttentionProblem& p, int most_keys, void* scratch, cudaStream_t stream) {
  HADAL_CUDA_CHECK(most_keys <= kMostFewKeys);
  most_keys <= 128 ? launch_few<1>(p, scratch, stream) : launch_few<5>(p, scratch, stream);
}

}  // namespace hadal::cuda
