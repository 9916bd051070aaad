// Steps of up to 8 rows, FP8: a chain of latencies, so it is one launch and shorter. All rows of the step, in their own order,
// are the token side of every expert's first product, since the matrix instruction has 8 columns anyway; an expert's results for
// rows that did not choose it are never read. So x is rounded once by every block, beside the first weights, and nothing is
// gathered. Each block rounds the activations that its pieces of the second product take, from bf16 in L2 to its own shared memory.
// Order of work, weights, sums and their order are those of grouped_kernel.cuh: the same bits.
#include "ops/experts/grouped_fp8.cuh"

namespace hadal::cuda {
namespace {

constexpr int kN = kFewExpertRows;
constexpr int kMostD = 5120, kMostWidth = 2304, kMostCount = 512;  // for which shared memory has room
constexpr int kConsumers = 512, kRounders = 96;
constexpr int kSlots = 2;  // pieces under way: one is multiplied, the next one's weights and activations come
constexpr int kConsumersBarrier = 5, kRoundersBarrier = 6;

struct FewTiles {
  static constexpr int kGroups = 4, kStages = 7;
  static constexpr int kProducerRegisters = 64, kConsumerRegisters = 104;
};
struct FewProducts {
  using Codec = E5m2Codec;
  using Tiles = FewTiles;
  static constexpr bool kScaled = true;
  static __device__ __forceinline__ uint4 leaving(const GroupedArgs&, uint4 v) { return v; }
};

struct FewShared {
  static constexpr int kStages = FewTiles::kStages;
  using Ring = RingPosition<kStages>;
  uint8_t x[kMostD * kN];  // [k tile][row], 128-byte swizzle
  uint8_t activated[kSlots][kMostWidth * kN];
  uint8_t results[FewTiles::kGroups][kN * 128];
  uint8_t weights[kStages][E5m2Codec::kTileBytes];
  Factors<kTileM, kN> factors[2 * kSlots];  // of the first product, then of the second
  Work work[kSlots];
  PackedPointers experts[kMostCount];
  int id[kFewChoices];                // of a choice, -1 where the expert is not local
  int expert[kFewChoices];            // of a tile, which is a chosen expert
  int chosen_by[kFewChoices];         // of a tile: bits of rows
  float row_weight[kFewChoices][kN];  // of a tile
  uint32_t largest[2][kConsumers / 32], largest_activated[2][kRounders / 32];
  uint64_t full[kStages], empty[kStages];
  uint64_t work_full[kSlots], work_empty[kSlots], operand_full[kSlots];
};

// 16 channels of a row: 16-byte chunk unit % 8 of group unit / 8, as load_part has them.
__device__ __forceinline__ RowPart load_unit(const uint16_t* row, int unit) {
  RowPart part;
  const uint16_t* from = row + unit / 8 * 128 + unit % 8 * 4;
#pragma unroll
  for (int j = 0; j < 4; ++j) part.v[j] = __ldcg(reinterpret_cast<const uint2*>(from + 32 * j));
  return part;
}
// Not an overload of `larger`: in this namespace it would hide the one that it calls, and four words make a RowPart too.
__device__ __forceinline__ uint32_t larger_of_part(uint32_t largest, const RowPart& part) {
  largest = larger(largest, uint4{part.v[0].x, part.v[0].y, part.v[1].x, part.v[1].y});
  return larger(largest, uint4{part.v[2].x, part.v[2].y, part.v[3].x, part.v[3].y});
}
__device__ __forceinline__ void store_unit(uint8_t* operand, int unit, int row, const RowPart& part, float inverse) {
  *reinterpret_cast<uint4*>(operand + (unit / 8 * kN + row) * 128 + ((unit % 8 ^ row) << 4)) = {
      round4(part.v[0], inverse), round4(part.v[1], inverse), round4(part.v[2], inverse), round4(part.v[3], inverse)};
}

// All rows of x, by the threads that multiply.
__device__ __forceinline__ void round_x(FewShared& s, const FewExpertsArgs& args, int thread) {
  const int lane = thread % 32, d = args.grouped.d;
  const bool has_part = thread < d / 16;
  const auto* x = static_cast<const uint16_t*>(args.grouped.x);
  RowPart next = {};
  if (has_part) next = load_unit(x, thread);
  for (int row = 0; row < args.rows; ++row) {
    const RowPart part = next;
    if (has_part && row + 1 < args.rows) next = load_unit(x + static_cast<size_t>(row + 1) * d, thread);
    const uint32_t of_warp = warp_largest(larger_of_part(0, part));
    if (lane == 0) s.largest[row & 1][thread / 32] = of_warp;
    named_barrier(kConsumersBarrier, kConsumers);
    const uint32_t largest = lane < kConsumers / 32 ? s.largest[row & 1][lane] : 0;
    const float scale = row_scale_of(__reduce_max_sync(0xffffffffu, largest));
    if (has_part) store_unit(s.x, thread, row, part, reciprocal_of_power(scale));
    if (thread < kSlots) s.factors[thread].token_scale[row] = bf16_of_power(scale);
  }
  fence_async_shared();
  named_barrier(kConsumersBarrier, kConsumers);
}

__device__ __forceinline__ void consume_few(FewShared& s, const FewExpertsArgs& args, int group, int thread) {
  FewShared::Ring ring;
  RingPosition<kSlots> queue;
  round_x(s, args, group * 128 + thread);
  while (true) {
    mbarrier_wait(&s.work_full[queue.stage], queue.parity);
    const Work& work = s.work[queue.stage];
    if (work.product < 0) return;
    mbarrier_wait(&s.operand_full[queue.stage], queue.parity);
    const uint8_t* operand = work.product == 0 ? s.x : s.activated[queue.stage];
    const int k_tiles = (work.product == 0 ? args.grouped.d : args.grouped.width) / E5m2Codec::kTileK;
    const uint64_t descriptor = k_major_descriptor(smem_address(operand));
    const uint32_t low = uniform(static_cast<uint32_t>(descriptor));
    float sum[kN / 2] = {};
    main_loop_one_block<kN>(s, ring, k_tiles, group, thread, sum, [&](int, int k) {
      return (low + static_cast<uint32_t>(k) * (kN * 128 / 16)) | descriptor >> 32 << 32;
    });
    finish_one_block<FewProducts, kN>(s, work, args.grouped, group, thread, sum);
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(&s.work_empty[queue.stage]);
    queue.advance();
  }
}

// Groups the choices by expert, by one warp; gives the number of tiles.
__device__ __forceinline__ int group_choices(FewShared& s, const FewExpertsArgs& args, int lane) {
  const int choices = args.rows * args.topk;
  int id[2] = {-1, -1};
  float weight[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int choice = lane + 32 * i;
    if (choice < choices) {
      id[i] = args.ids[choice];
      weight[i] = args.weights[choice];
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (id[i] >= 0 && s.experts[id[i]].gate_up == nullptr) id[i] = -1;
    s.id[lane + 32 * i] = id[i];
    s.chosen_by[lane + 32 * i] = 0;
  }
  for (int i = lane; i < choices * kN; i += 32) s.row_weight[i / kN][i % kN] = 0;
  __syncwarp();
  int first[2] = {lane, lane + 32};  // choice of the same expert
  for (int choice = choices - 1; choice >= 0; --choice) {
    const int other = s.id[choice];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (other == id[i] && choice < lane + 32 * i) first[i] = choice;
  }
  uint32_t firsts[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) firsts[i] = __ballot_sync(0xffffffffu, id[i] >= 0 && first[i] == lane + 32 * i);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int choice = lane + 32 * i, row = choice / args.topk;
    const uint32_t below = (1u << first[i] % 32) - 1;
    const int tile = first[i] < 32 ? __popc(firsts[0] & below) : __popc(firsts[0]) + __popc(firsts[1] & below);
    if (choice >= choices) continue;
    if (id[i] >= 0) {
      s.expert[tile] = id[i];
      s.row_weight[tile][row] = weight[i];
      atomicOr(&s.chosen_by[tile], 1 << row);
    }
    if (blockIdx.x == 0) args.grouped.plan.pair_row[choice] = id[i] < 0 ? -1 : tile * kN + row;
  }
  __syncwarp();
  return __popc(firsts[0]) + __popc(firsts[1]);
}

__device__ __forceinline__ Work few_work(const FewShared& s, const FewExpertsArgs& args, int number, int tiles) {
  const GroupedArgs& grouped = args.grouped;
  Work work;
  const int bands0 = 2 * grouped.width / kTileM, bands1 = grouped.d / kTileM;
  work.product = number < tiles * bands0 ? 0 : number < tiles * (bands0 + bands1) ? 1 : -1;
  if (work.product < 0) return work;
  if (work.product == 1) number -= tiles * bands0;
  const int bands = work.product == 0 ? bands0 : bands1, k = work.product == 0 ? grouped.d : grouped.width;
  work.tile = number / bands;
  work.band = number % bands;
  work.row0 = work.tile * kN;
  work.n = args.rows;
  const PackedPointers& packed = s.experts[s.expert[work.tile]];
  const uint8_t* matrix = work.product == 0 ? packed.gate_up : packed.down;
  const size_t band_bytes = static_cast<size_t>(k / E5m2Codec::kTileK) * E5m2Codec::kTileBytes;
  work.weights = matrix + work.band * band_bytes;
  work.row_scale = reinterpret_cast<const float*>(matrix + bands * band_bytes) + work.band * kTileM;
  return work;
}

// One thread, as supply_weights.
__device__ __forceinline__ void supply_few(FewShared& s, const FewExpertsArgs& args, int tiles) {
  FewShared::Ring ring;
  RingPosition<kSlots> queue;
  int number = blockIdx.x;
  while (true) {
    Work work = few_work(s, args, number, tiles);
    work.factors = work.product * kSlots + queue.stage;
    mbarrier_wait(&s.work_empty[queue.stage], queue.parity ^ 1);
    s.work[queue.stage] = work;
    mbarrier_arrive(&s.work_full[queue.stage]);
    queue.advance();
    if (work.product < 0) return;
    const int k_tiles = (work.product == 0 ? args.grouped.d : args.grouped.width) / E5m2Codec::kTileK;
    const uint8_t* from = work.weights;
    auto& factors = s.factors[work.factors];
    for (int k = 0; k < k_tiles; ++k, from += E5m2Codec::kTileBytes) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &s.full[ring.stage];
      mbarrier_arrive_expect(full, E5m2Codec::kTileBytes + (k == 0 ? sizeof(factors.row_scale) : 0));
      bulk_copy(s.weights[ring.stage], from, E5m2Codec::kTileBytes, full);
      if (k == 0) bulk_copy(factors.row_scale, work.row_scale, sizeof(factors.row_scale), full);
      ring.advance();
    }
    number = gridDim.x + atomicAdd(args.grouped.plan.next, 1);
  }
}

// Three warps: what a piece needs besides weights. Of the second product that is the activations, rounded.
__device__ __forceinline__ void prepare_few(FewShared& s, const FewExpertsArgs& args, int thread) {
  constexpr int kParts = (kMostWidth / 16 + kRounders - 1) / kRounders;
  const int lane = thread % 32, units = args.grouped.width / 16;
  RingPosition<kSlots> queue;
  int turn = 0;
  while (true) {
    mbarrier_wait(&s.work_full[queue.stage], queue.parity);
    const Work& work = s.work[queue.stage];
    if (work.product < 0) break;
    auto& factors = s.factors[work.factors];
    const int tile = work.tile;
    if (work.product == 0) {
      if (thread < kN) factors.row_weight[thread] = s.row_weight[tile][thread];
    } else {
      if (lane == 0) await_activated(args.grouped, tile, FewTiles::kGroups);
      __syncwarp();
      for (int rows = s.chosen_by[tile]; rows != 0; rows &= rows - 1) {
        const int row = __ffs(rows) - 1;
        const uint16_t* from = args.grouped.activated + static_cast<size_t>(tile * kN + row) * args.grouped.width;
        RowPart part[kParts];
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          const int unit = thread + kRounders * i;
          part[i] = unit < units ? load_unit(from, unit) : RowPart{};
        }
#pragma unroll
        for (int i = 0; i < kParts; ++i) largest = larger_of_part(largest, part[i]);
        largest = warp_largest(largest);
        if (lane == 0) s.largest_activated[turn][thread / 32] = largest;
        named_barrier(kRoundersBarrier, kRounders);
#pragma unroll
        for (int i = 0; i < kRounders / 32; ++i) largest = max(largest, s.largest_activated[turn][i]);
        turn ^= 1;
        const float scale = row_scale_of(largest), inverse = reciprocal_of_power(scale);
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          const int unit = thread + kRounders * i;
          if (unit < units) store_unit(s.activated[queue.stage], unit, row, part[i], inverse);
        }
        if (thread == 0) factors.token_scale[row] = bf16_of_power(scale);
      }
      fence_async_shared();
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&s.operand_full[queue.stage]);
    queue.advance();
  }
  // The last block leaves the counters as it found them. By then nobody takes a piece, and everybody who waited for
  // activations, for which all were counted, is through: the rounding of a row is a barrier of the three warps.
  if (thread == 0) {
    __threadfence();
    int* left = args.counters + kFewChoices + 1;
    if (atomicAdd(left, 1) == static_cast<int>(gridDim.x) - 1)
      for (int i = 0; i < kFewCounters; ++i) args.counters[i] = 0;
  }
}

__global__ void __launch_bounds__(kConsumers + 128, 1) few_kernel(const __grid_constant__ FewExpertsArgs args) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& s = *reinterpret_cast<FewShared*>(bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < FewShared::kStages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], kConsumers / 32);
    }
    for (int i = 0; i < kSlots; ++i) {
      mbarrier_init(&s.work_full[i], 1);
      mbarrier_init(&s.work_empty[i], kConsumers / 32);
      mbarrier_init(&s.operand_full[i], kRounders / 32);
    }
    mbarrier_init_fence();
  }
  for (int i = threadIdx.x; i < args.count; i += kConsumers + 128) s.experts[i] = args.experts[i];
  __syncthreads();
  wait_for_previous();  // the router
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group == FewTiles::kGroups) {
    registers_give<FewTiles::kProducerRegisters>();
    if (thread < 32) {
      const int tiles = group_choices(s, args, thread);
      if (thread == 0) {
        supply_few(s, args, tiles);
        let_next_start();
      }
    } else {
      prepare_few(s, args, thread - 32);
    }
  } else {
    registers_take<FewTiles::kConsumerRegisters>();
    consume_few(s, args, group, thread);
  }
}

}  // namespace

bool few_experts_take(int rows, int topk, int count, int d, int width) {
  return rows <= kFewExpertRows && rows * topk <= kFewChoices && count <= kMostCount && d <= kMostD &&
         width <= kMostWidth;
}

void few_experts(FewExpertsArgs args, int multiprocessors, cudaStream_t stream) {
  static_assert(sizeof(FewShared) <= 227 * 1024);
  args.grouped.plan.done = args.counters;
  args.grouped.plan.next = args.counters + kFewChoices;
  LaunchShape shape{dim3(multiprocessors), dim3(kConsumers + 128), sizeof(FewShared), stream};
  shape.early = true;
  launch("few_experts", few_kernel, shape, args);
}

}  // namespace hadal::cuda
