// FP8 rows of prefill steps: pieces are 256 weight rows x up to 288 tokens, and a cluster of two blocks shares one.
// Each block has 128 of the weight rows; of the tokens each brings half to both, so that bytes from L2 and decoding are
// shared out.
//
// Of a block's four warpgroups
//   0, 1   multiply, 64 weight rows each: the weights of a pair of k tiles are decoded, then multiplied with one part
//          of the tokens after the other. In the end sums are scaled, rounded to bf16 and handed over through shared
//          memory.
//   2      warp 0 takes pieces and streams weights, warp 1 streams tokens, warps 2 and 3 round the activations
//          (round_tiles).
//   3      takes the results out of shared memory, two warps for each multiplying warpgroup: SwiGLU, and rows to
//          memory. So results leave beside the products of the next piece.
//
// Tokens come in units of one part (at most 64 tokens) x 256 channels. A unit is free as soon as its part is
// multiplied, which leaves the copies more time than if all of a pair's units were freed together.
//
// Prefill is bound by power, so that what counts is energy: fewer instructions and bytes, and a matrix unit that is
// busy at a lower clock rather than idle at a higher one.
#include "ops/experts/grouped_fp8.cuh"

namespace hadal::cuda {
namespace {

constexpr int kGroups = 2;  // warpgroups that multiply
constexpr int kWarps = 4 * kGroups;
constexpr int kCluster = 2;
constexpr int kBlockRows = kTileM / kCluster;
constexpr int kWeightBytes = E5m2Codec::kTileBytes / kCluster;  // of a k tile
constexpr int kUnits = 7, kUnitTokens = 64;
constexpr int kPairs = 2;  // of k tiles, of weights
constexpr int kResultBuffers = 4, kResultTokens = 64;
constexpr int kDrainThreads = 64;
// 208 registers are what 144 sums, 24 partial sums and 32 operands leave ptxas to work with.
constexpr int kConsumerRegisters = 208, kProducerRegisters = 40, kDrainRegisters = 56;
constexpr int kDrainBarrier = 1;  // the first named barrier of warps that take out results
// Numbers of pieces under way to the other block. The sender is at most kWork pieces ahead of its own consumers, and
// these have nothing to consume where the other block has not begun.
constexpr int kNumbers = kWork + 2;

// Tokens come in equal parts, whose sums must fit the registers, or in equal parts and a smaller one. (Of those, ptxas serialises
// the products of some, C7511: 264 in parts of 56, 248, and 216 or 232 beside these two.)
constexpr int part_tokens(int n) {
  if (n == 264) return 48;
  if (n == 272) return 56;
  int parts = 1;
  while (n % (8 * parts) != 0 || n / parts > kUnitTokens) ++parts;
  return n / parts;
}
// All multiples of 64 are there: then the last chunk of results of a width has tokens of every tile that takes this
// width.
using Widths = WidthList<32, 64, 96, 128, 144, 160, 168, 192, 200, 224, 240, 256, 264, 272, 280, 288>;

template <int... N>
__device__ __forceinline__ int width_of(WidthList<N...>, int n) {
  int width = 0;
  ((width = width == 0 && n <= N ? N : width), ...);
  return width;
}
template <int... N>
__device__ __forceinline__ int part_of(WidthList<N...>, int n) {
  int part = 0;
  ((part = part == 0 && n <= N ? part_tokens(N) : part), ...);
  return part;
}

struct WideShared {
  uint8_t tokens[kUnits][2][kUnitTokens * 128];                   // the k tiles of a pair, 128-byte swizzle
  uint8_t weights[kPairs][2][kWeightBytes];                       // the block's codes, then their exponents
  uint8_t results[kGroups][kResultBuffers][kResultTokens * 128];  // [token][64 values], swizzled
  Factors<kBlockRows, kMaxTileRows8> factors[kWork];
  Work work[kWork];
  uint64_t unit_full[kUnits], unit_empty[kUnits];
  uint64_t weights_full[kPairs], weights_empty[kPairs];
  uint64_t work_full[kWork], work_empty[kWork];
  uint64_t result_full[kGroups][kResultBuffers], result_empty[kGroups][kResultBuffers];
  int number[kNumbers];  // of pieces that the cluster's first block took, in the other
  uint64_t number_full[kNumbers];
};

struct Rings {
  RingPosition<kUnits> unit;
  RingPosition<kPairs> weights;
  RingPosition<kResultBuffers> result;
};

// ---- products --------------------------------------------------------------------------------------------------
// A k tile of this warpgroup's 64 weight rows, as stored.
struct RawWeights {
  uint4 codes[2];
  uint32_t exponents;
};
__device__ __forceinline__ RawWeights load_weights(const uint8_t* tile, int group, int thread) {
  return {{E5m2Codec::load(tile, group, 0, thread), E5m2Codec::load(tile, group, 1, thread)},
          E5m2Codec::load_exponents(tile, group, thread, kGroups)};
}
__device__ __forceinline__ void decode_weights(const RawWeights& raw, uint32_t* a) {
  const auto tables = E5m2Codec::tables(raw.exponents);
  E5m2Codec::decode(raw.codes[0], tables, a);
  E5m2Codec::decode(raw.codes[1], tables, a + 8);
}

template <int N>
__device__ __forceinline__ void multiply_tile(WideShared& s, Rings& rings, int pairs, int group, int thread,
                                              float* sum) {
  constexpr int kPart = part_tokens(N), kParts = (N + kPart - 1) / kPart, kLast = N - (kParts - 1) * kPart;
  float partial[kPart / 2];
#pragma unroll
  for (int i = 0; i < kPart / 2; ++i) partial[i] = 0;
  uint32_t a[32];
  // Of a part, with both k tiles.
  const auto products = [&]<int kTokens>(std::integral_constant<int, kTokens>, int part, const RawWeights& second)
      __attribute__((always_inline)) {
    const uint64_t descriptor = k_major_descriptor(smem_address(s.tokens[rings.unit.stage]));
    const uint64_t tokens = uniform(static_cast<uint32_t>(descriptor)) | descriptor >> 32 << 32;
    uint64_t* empty = &s.unit_empty[rings.unit.stage];
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) Wgmma<kTokens>::rs_e5m2(partial, a + 4 * i, tokens + 2 * i, i == 0 ? 0 : 1);
    if (part == 0) {  // behind the products of the first k tile
      wgmma_commit();
      decode_weights(second, a + 16);
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(&s.weights_empty[rings.weights.stage]);
      rings.weights.advance();
      wgmma_fence();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) Wgmma<kTokens>::rs_e5m2(partial, a + 16 + 4 * i, tokens + kUnitTokens * 8 + 2 * i, 1);
    wgmma_commit();
    rings.unit.advance();
    if (part + 1 < kParts) mbarrier_wait(&s.unit_full[rings.unit.stage], rings.unit.parity);
    promote<kTokens>(sum + part * kPart / 2, partial);
    __syncwarp();
    if (thread % 32 < kCluster) mbarrier_arrive_at(empty, thread % 32);
  };
#pragma unroll 1
  do {
    mbarrier_wait(&s.weights_full[rings.weights.stage], rings.weights.parity);
    const auto& tile = s.weights[rings.weights.stage];
    decode_weights(load_weights(tile[0], group, thread), a);
    const RawWeights second = load_weights(tile[1], group, thread);
    mbarrier_wait(&s.unit_full[rings.unit.stage], rings.unit.parity);
#pragma unroll
    for (int part = 0; part < kParts - 1; ++part) products(std::integral_constant<int, kPart>{}, part, second);
    products(std::integral_constant<int, kLast>{}, kParts - 1, second);
  } while (--pairs > 0);
}

// Sums, scaled and rounded, for the warps that take them out.
template <int N>
__device__ __forceinline__ void hand_over_tile(WideShared& s, RingPosition<kResultBuffers>& ring, int slot, int group,
                                               int thread, const float (&sum)[N / 2]) {
  const int warp = thread >> 5, lane = thread & 31;
  const auto& factors = s.factors[slot];
  const RowFactor<true> low(factors.row_scale[group * 64 + warp * 16 + (lane >> 2)]);
  const RowFactor<true> high(factors.row_scale[group * 64 + warp * 16 + (lane >> 2) + 8]);
  const uint16_t* token_scale = factors.token_scale + 2 * (lane & 3);
  const uint32_t offset = (lane & 7) * 128 + (((2 * warp + ((lane >> 3) & 1)) ^ (lane & 7)) << 4);
#pragma unroll
  for (int first = 0; first < N; first += kResultTokens) {
    mbarrier_wait(&s.result_empty[group][ring.stage], ring.parity ^ 1);
    const uint32_t to = smem_address(s.results[group][ring.stage]) + offset;
#pragma unroll
    for (int j = first / 8; j < (first + kResultTokens) / 8 && j < N / 8; ++j) {
      const uint32_t t = *reinterpret_cast<const uint32_t*>(token_scale + 8 * j);
      store_matrix2_transposed(to + j % (kResultTokens / 8) * 1024, low.round(sum[4 * j], sum[4 * j + 1], t),
                               high.round(sum[4 * j + 2], sum[4 * j + 3], t));
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&s.result_full[group][ring.stage]);
    ring.advance();
  }
}

template <int N>
__device__ __forceinline__ void run_piece(WideShared& s, Rings& rings, int slot, const GroupedArgs& args, int group,
                                          int thread) {
  // Or ptxas reads it anew from its special register in every stage, at 20 cycles.
  thread = __shfl_sync(0xffffffffu, thread, thread % 32);
  const int pairs = (s.work[slot].product == 0 ? args.d : args.width) / (2 * E5m2Codec::kTileK);
  float sum[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) sum[i] = 0;
  multiply_tile<N>(s, rings, pairs, group, thread, sum);
  hand_over_tile<N>(s, rings.result, opaque(slot), opaque(group), opaque(thread), sum);
}

// As run_width of the common frame.
template <int... N>
__device__ __forceinline__ void run_any(WidthList<N...> widths, WideShared& s, Rings& rings, int slot,
                                        const GroupedArgs& args, int group, int thread) {
  const int width = width_of(widths, s.work[slot].n);
  const auto run = [&]<int W>(std::integral_constant<int, W>) __attribute__((always_inline)) {
    if (opaque(width) == W) run_piece<W>(s, rings, slot, args, opaque(group), opaque(thread));
  };
  (run(std::integral_constant<int, N>{}), ...);
}

__device__ __forceinline__ void multiply_pieces(WideShared& s, const GroupedArgs& args, int group, int thread) {
  Rings rings;
  RingPosition<kWork> queue;
  while (true) {
    mbarrier_wait(&s.work_full[queue.stage], queue.parity);
    if (s.work[queue.stage].product < 0) return;
    run_any(Widths{}, s, rings, queue.stage, args, group, thread);
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(&s.work_empty[queue.stage]);
    queue.advance();
  }
}

// ---- supply ----------------------------------------------------------------------------------------------------
// To the same place in all blocks of the cluster; completes on the barrier at the place of `bar` in each.
__device__ __forceinline__ void bulk_copy_to_all(void* to, const void* from, uint32_t bytes, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
      "%4;" ::"r"(smem_address(to)),
      "l"(from), "r"(bytes), "r"(smem_address(bar)), "h"(static_cast<uint16_t>((1 << kCluster) - 1))
      : "memory");
}
// A value to the same place in block `rank`, for the barrier there.
__device__ __forceinline__ void store_async_cluster(int* to, int value, uint64_t* bar, int rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   cluster_address(smem_address(to), rank)),
               "r"(value), "r"(cluster_address(smem_address(bar), rank))
               : "memory");
}

// The next piece: the cluster's first block takes it and tells the other.
__device__ __forceinline__ int next_number(WideShared& s, RingPosition<kNumbers>& numbers, const GroupedArgs& args,
                                           int rank) {
  int number;
  if (rank == 0) {
    number = gridDim.x / kCluster + atomicAdd(args.plan.next, 1);
    for (int other = 1; other < kCluster; ++other)
      store_async_cluster(&s.number[numbers.stage], number, &s.number_full[numbers.stage], other);
  } else {
    mbarrier_arrive_expect(&s.number_full[numbers.stage], sizeof(int));
    mbarrier_wait(&s.number_full[numbers.stage], numbers.parity);
    number = *static_cast<volatile int*>(&s.number[numbers.stage]);
  }
  numbers.advance();
  return number;
}

// One thread: takes pieces, the first by its cluster's number, and streams their weights.
__device__ __forceinline__ void supply_block_weights(WideShared& s, const GroupedArgs& args) {
  using Codec = E5m2Codec;
  constexpr int kCodes = 4 / kCluster * Codec::kBlockBytes, kExponents = 4 / kCluster * Codec::kExponentBytes;
  const int rank = static_cast<int>(cluster_cta_rank());
  RingPosition<kPairs> ring;
  RingPosition<kWork> queue;
  RingPosition<kNumbers> numbers;
  const uint64_t policy = evict_first_policy();  // L2 is for the activations
  const int tiles = *args.plan.tile_count;
  int number = blockIdx.x / kCluster;
  while (true) {
    Work work = work_of<Codec>(args, number, tiles);
    work.factors = queue.stage;
    mbarrier_wait(&s.work_empty[queue.stage], queue.parity ^ 1);
    s.work[queue.stage] = work;
    mbarrier_arrive(&s.work_full[queue.stage]);
    queue.advance();
    if (work.product < 0) return;
    const int pairs = (work.product == 0 ? args.d : args.width) / (2 * Codec::kTileK);
    const uint8_t* from = work.weights;
    auto& factors = s.factors[work.factors];
    for (int pair = 0; pair < pairs; ++pair) {
      mbarrier_wait(&s.weights_empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &s.weights_full[ring.stage];
      if (pair == 0) {
        const uint32_t row_bytes = work.product == 0 ? work.n * sizeof(float) : 0;
        mbarrier_arrive_expect(full, 2 * kWeightBytes + sizeof(factors.row_scale) + row_bytes);
        bulk_copy(factors.row_scale, work.row_scale + rank * kBlockRows, sizeof(factors.row_scale), full);
        if (row_bytes) bulk_copy(factors.row_weight, args.plan.row_weight + work.row0, row_bytes, full);
      } else {
        mbarrier_arrive_expect(full, 2 * kWeightBytes);
      }
      for (int i = 0; i < 2; ++i, from += Codec::kTileBytes) {
        uint8_t* to = s.weights[ring.stage][i];
        bulk_copy(to, from + rank * kCodes, kCodes, full, policy);
        bulk_copy(to + kCodes, from + 4 * Codec::kBlockBytes + rank * kExponents, kExponents, full, policy);
      }
      ring.advance();
    }
    // Not before: a piece that is taken early waits while other blocks are out of work.
    number = next_number(s, numbers, args, rank);
  }
}

// One thread: of a unit, each block brings one k tile to both. Token scales come with a piece's first unit.
__device__ __forceinline__ void supply_units(WideShared& s, const GroupedArgs& args) {
  const int rank = static_cast<int>(cluster_cta_rank());
  RingPosition<kUnits> ring;
  RingPosition<kWork> queue;
  while (true) {
    const auto [product, row0, n, tile, slot] = next_piece(s, queue);
    if (product < 0) return;
    auto& factors = s.factors[slot];
    const int k_tiles = (product == 0 ? args.d : args.width) / E5m2Codec::kTileK, part = part_of(Widths{}, n);
    const auto* codes = product == 0 ? static_cast<const uint8_t*>(args.x) : args.activated_codes;
    const uint16_t* scales = (product == 0 ? args.x_scale : args.activated_scale) + row0;
    codes += Fp8Tile{row0, n, k_tiles}.code(rank, 0);
    if (product == 1) {
      await_count(&args.plan.rounded[tile], kRoundedParts);
      fence_async_global();  // written by other blocks through the other proxy
    }
    for (int pair = 0; pair < k_tiles / 2; ++pair, codes += 2 * n * 128)
      for (int first = 0; first < n; first += part) {
        const uint32_t bytes = min(part, n - first) * 128, scale_bytes = n * sizeof(*scales);
        const bool begins = pair == 0 && first == 0;
        mbarrier_wait(&s.unit_empty[ring.stage], ring.parity ^ 1);
        uint64_t* full = &s.unit_full[ring.stage];
        mbarrier_arrive_expect(full, 2 * bytes + (begins ? scale_bytes : 0));
        bulk_copy_to_all(s.tokens[ring.stage][rank], codes + first * 128, bytes, full);
        if (begins) bulk_copy(factors.token_scale, scales, scale_bytes, full);
        ring.advance();
      }
  }
}

// ---- results ---------------------------------------------------------------------------------------------------
// Eight channels of a token.
__device__ __forceinline__ uint4 swiglu8(const uint4& gates, const uint4& ups, float limit, float weight) {
  float gate[8], up[8];
  unpack_bf16x8(gates, gate);
  unpack_bf16x8(ups, up);
#pragma unroll
  for (int i = 0; i < 8; ++i) gate[i] = swiglu(gate[i], up[i], limit, weight);
  return {pack_bf16x2(gate[0], gate[1]), pack_bf16x2(gate[2], gate[3]), pack_bf16x2(gate[4], gate[5]),
          pack_bf16x2(gate[6], gate[7])};
}

// Two warps take out what one warpgroup hands over.
__device__ __forceinline__ void drain_results(WideShared& s, const GroupedArgs& args, int group, int thread) {
  const int block = static_cast<int>(cluster_cta_rank()) * kGroups + group;  // of the band
  RingPosition<kWork> queue;
  RingPosition<kResultBuffers> ring;
  while (true) {
    mbarrier_wait(&s.work_full[queue.stage], queue.parity);
    const Work& work = s.work[queue.stage];
    const int product = work.product, row0 = work.row0, n = work.n, band = work.band;
    if (product < 0) return;
    const float* weights = s.factors[queue.stage].row_weight;
    for (int first = 0; first < n; first += kResultTokens) {
      const int rows = min(n - first, kResultTokens);
      const uint8_t* results = s.results[group][ring.stage];
      mbarrier_wait(&s.result_full[group][ring.stage], ring.parity);
      if (product == 0) {  // of 16 rows the first 8 are gate, the last 8 up
        const int q = thread % 4;
        uint16_t* out =
            args.activated + static_cast<size_t>(row0 + first) * args.width + band * 128 + block * 32 + q * 8;
        for (int i = thread / 4; i < rows; i += kDrainThreads / 4) {
          const uint8_t* row = results + i * 128;
          const uint4 gate = *reinterpret_cast<const uint4*>(row + (((2 * q) ^ (i & 7)) << 4));
          const uint4 up = *reinterpret_cast<const uint4*>(row + (((2 * q + 1) ^ (i & 7)) << 4));
          *reinterpret_cast<uint4*>(out + static_cast<size_t>(i) * args.width) =
              swiglu8(gate, up, args.limit, weights[first + i]);
        }
      } else {
        const int chunk = thread % 8;
        uint16_t* out = args.out + static_cast<size_t>(row0 + first) * args.d + band * kTileM + block * 64 + chunk * 8;
#pragma unroll 4
        for (int i = thread / 8; i < rows; i += kDrainThreads / 8)
          *reinterpret_cast<uint4*>(out + static_cast<size_t>(i) * args.d) =
              *reinterpret_cast<const uint4*>(results + i * 128 + ((chunk ^ (i & 7)) << 4));
      }
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(&s.result_empty[group][ring.stage]);
      ring.advance();
    }
    if (product == 0) {
      named_barrier(kDrainBarrier + group, kDrainThreads);
      if (thread == 0) { add_release(&args.plan.done[work.tile], 1); }
    }
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(&s.work_empty[queue.stage]);
    queue.advance();
  }
}

// ---- the kernel ------------------------------------------------------------------------------------------------
constexpr int kThreads = (kGroups + 2) * 128;

__global__ void __launch_bounds__(kThreads, 1) grouped_fp8_wide_kernel(const __grid_constant__ GroupedArgs args) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<WideShared*>(shared_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kUnits; ++i) {
      mbarrier_init(&s.unit_full[i], 1);
      mbarrier_init(&s.unit_empty[i], kWarps * kCluster);
    }
    for (int i = 0; i < kPairs; ++i) {
      mbarrier_init(&s.weights_full[i], 1);
      mbarrier_init(&s.weights_empty[i], kWarps);
    }
    for (int i = 0; i < kNumbers; ++i) mbarrier_init(&s.number_full[i], 1);
    for (int i = 0; i < kWork; ++i) {
      mbarrier_init(&s.work_full[i], 1);
      mbarrier_init(&s.work_empty[i], kWarps + 1 + kGroups * kDrainThreads / 32);
    }
    for (int group = 0; group < kGroups; ++group)
      for (int i = 0; i < kResultBuffers; ++i) {
        mbarrier_init(&s.result_full[group][i], 4);
        mbarrier_init(&s.result_empty[group][i], kDrainThreads / 32);
      }
    mbarrier_init_fence();
  }
  cluster_sync();
  wait_for_previous();  // the grouping
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group < kGroups) {
    registers_take<kConsumerRegisters>();
    multiply_pieces(s, args, group, thread);
  } else if (group == kGroups) {
    registers_give<kProducerRegisters>();
    if (thread == 0)
      supply_block_weights(s, args);
    else if (thread == 32)
      supply_units(s, args);
    else if (thread >= 64)
      round_tiles(args, thread / 32 - 2, thread % 32);
  } else {
    registers_give<kDrainRegisters>();
    drain_results(s, args, thread / kDrainThreads, thread % kDrainThreads);
  }
  cluster_sync();  // the other block may still write here
}

}  // namespace

void grouped_fp8_wide(const GroupedArgs& args, int multiprocessors, cudaStream_t stream) {
  constexpr int kBytes = sizeof(WideShared);
  static_assert(kBytes <= 227 * 1024);
  LaunchShape shape{dim3(multiprocessors / kCluster * kCluster), dim3(kThreads), kBytes, stream};
  shape.early = true;
  shape.cluster = kCluster;
  launch("grouped_fp8_wide_kernel", grouped_fp8_wide_kernel, shape, args);
}

}  // namespace hadal::cuda
