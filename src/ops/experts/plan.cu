// Groups rows by expert before the matrix kernel.
#include <cub/block/block_scan.cuh>

#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/experts/expert_rows.cuh"
#include "ops/experts/grouped.h"

namespace hadal::cuda {
namespace {

constexpr int kPlanThreads = 1024;  // also the largest number of local experts
constexpr int kPlanCluster = 8;

__host__ __device__ constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }

// Cuts rows [row0, row0 + padded) of a slot into tiles of nearly equal size.
__device__ void cut_tiles(const RowPlan& plan, int slot, int row0, int padded, int tiles, int first) {
  const int n = tiles ? round_up((padded + tiles - 1) / tiles, 8) : 0;
  for (int i = 0; i < tiles; ++i) {
    plan.tiles[first + i] = {slot, row0 + i * n, min(n, padded - i * n), first, tiles};
    plan.done[first + i] = 0;
    plan.rounded[first + i] = 0;
  }
}

// How rows of a slot are cut into tiles.
struct Cut {
  int row0, n, rows;  // of the slot, of a tile, of the slot
  // The tile of a grouped row.
  __device__ Fp8Tile tile(int row, int groups) const {
    const int first = (row - row0) / n * n;
    return {row0 + first, min(n, rows - first), groups};
  }
};

// Rows of each slot known: where they begin, their tiles, their padding. Thread t is slot t.
__device__ Cut lay_out(const RowPlan& plan, int rows, typename cub::BlockScan<int, kPlanThreads>::TempStorage& scan,
                       bool write) {
  using Scan = cub::BlockScan<int, kPlanThreads>;
  const int t = threadIdx.x, padded = round_up(rows, 8), tiles = (padded + plan.max_tile_rows - 1) / plan.max_tile_rows;
  int row0, first, total_rows, total_tiles;
  Scan(scan).ExclusiveSum(padded, row0, total_rows);
  __syncthreads();
  Scan(scan).ExclusiveSum(tiles, first, total_tiles);
  const Cut cut{row0, tiles ? round_up((padded + tiles - 1) / tiles, 8) : 8, padded};
  if (!write) return cut;
  cut_tiles(plan, t, row0, padded, tiles, first);
  for (int i = rows; i < padded; ++i) {
    plan.row_token[row0 + i] = 0;
    plan.row_weight[row0 + i] = 0;
  }
  if (t == 0) {
    *plan.tile_count = total_tiles;
    *plan.next = 0;
  }
  return cut;
}

__device__ __forceinline__ void place(const RowPlan& plan, int choice, int row, float weight, int topk) {
  plan.pair_row[choice] = row;
  if (row >= 0) {
    plan.row_token[row] = choice / topk;
    plan.row_weight[row] = weight;
  }
}

// Decode steps: a block counts, scans and places. With rows to round, the first block does not place: every further block does
// all this for itself and places and rounds one row.
__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(RowPlan plan, const int32_t* ids, const float* weights, int choices, int topk, const int32_t* slot_of,
                int slots, RowsToRound to_round) {
  __shared__ typename cub::BlockScan<int, kPlanThreads>::TempStorage scan;
  __shared__ int count[kPlanThreads];
  __shared__ Cut cuts[kPlanThreads];
  __shared__ int own_slot[kMostExperts], before[kMostExperts];
  __shared__ RowPlaces places;
  const int t = threadIdx.x, row = static_cast<int>(blockIdx.x) - 1, first = row * topk;
  const bool one_row = row >= 0;
  wait_for_previous();
  let_next_start();
  count[t] = 0;
  if (one_row && t < topk) {
    own_slot[t] = slot_of[ids[first + t]];
    before[t] = 0;
  }
  RowPart part;
  if (one_row) part = load_part(to_round, row);
  __syncthreads();
  for (int i = t; i < choices; i += kPlanThreads) {
    const int slot = slot_of[ids[i]];
    if (slot < 0) continue;
    atomicAdd(&count[slot], 1);
    if (one_row && i < first)
      for (int k = 0; k < topk; ++k)
        if (own_slot[k] == slot) atomicAdd(&before[k], 1);
  }
  __syncthreads();
  const Cut cut = lay_out(plan, t < slots ? count[t] : 0, scan, !one_row);
  cuts[t] = cut;
  __syncthreads();
  if (one_row) {
    if (t < topk) {
      const int slot = own_slot[t], at = slot < 0 ? -1 : cuts[slot].row0 + before[t];
      place(plan, first + t, at, weights[first + t], topk);
      places.row[t] = -1;
      if (slot >= 0) {
        places.tile[t] = cuts[slot].tile(at, to_round.d / 128);
        places.row[t] = at - places.tile[t].row0;
      }
    }
    round_row(to_round, row, part, places, topk);
    return;
  }
  if (to_round.x != nullptr) return;
  count[t] = cut.row0;
  __syncthreads();
  for (int i = t; i < choices; i += kPlanThreads) {
    const int slot = slot_of[ids[i]];
    place(plan, i, slot < 0 ? -1 : atomicAdd(&count[slot], 1), weights[i], topk);
  }
}

// Prefill steps: the same by a cluster of blocks that share out the choices. One block took 0.06 ms for 24,576 of them.
__device__ __forceinline__ int load_cluster(const int* from, int rank) {
  int value;
  asm volatile("ld.shared::cluster.b32 %0, [%1];"
               : "=r"(value)
               : "r"(cluster_address(smem_address(from), rank))
               : "memory");
  return value;
}
__global__ void __launch_bounds__(kPlanThreads)
    group_kernel(RowPlan plan, const int32_t* ids, const float* weights, int choices, int topk, const int32_t* slot_of,
                 int slots, bool tiles) {
  __shared__ typename cub::BlockScan<int, kPlanThreads>::TempStorage scan;
  __shared__ int count[kPlanThreads], next[kPlanThreads];
  __shared__ Cut cuts[kPlanThreads];
  const int t = threadIdx.x, rank = static_cast<int>(cluster_cta_rank());
  const int share = (choices + kPlanCluster - 1) / kPlanCluster, end = min((rank + 1) * share, choices);
  wait_for_previous();
  let_next_start();
  count[t] = 0;
  __syncthreads();
#pragma unroll 4
  for (int i = rank * share + t; i < end; i += kPlanThreads) {
    const int slot = slot_of[ids[i]];
    if (slot >= 0) atomicAdd(&count[slot], 1);
  }
  cluster_sync();
  int before = 0, all = 0;
#pragma unroll
  for (int other = 0; other < kPlanCluster; ++other) {
    const int n = load_cluster(&count[t], other);
    all += n;
    if (other < rank) before += n;
  }
  const Cut cut = lay_out(plan, t < slots ? all : 0, scan, rank == 0);
  cuts[t] = cut;
  next[t] = cut.row0 + before;
  __syncthreads();
#pragma unroll 4
  for (int i = rank * share + t; i < end; i += kPlanThreads) {
    const int slot = slot_of[ids[i]], row = slot < 0 ? -1 : atomicAdd(&next[slot], 1);
    place(plan, i, row, weights[i], topk);
    if (tiles && slot >= 0) {
      const Fp8Tile tile = cuts[slot].tile(row, 1);
      plan.pair_tile[i] = {tile.row0, tile.n};
    }
  }
  cluster_sync();  // nobody leaves whose counts are read
}

// Then, a row a block.
__global__ void __launch_bounds__(kPlanThreads) round_rows_kernel(RowPlan plan, int topk, RowsToRound to_round) {
  __shared__ RowPlaces places;
  const int row = blockIdx.x, t = threadIdx.x;
  wait_for_previous();
  let_next_start();
  const RowPart part = load_part(to_round, row);
  if (t < topk) {
    const int at = plan.pair_row[row * topk + t];
    const int2 tile = plan.pair_tile[row * topk + t];
    places.tile[t] = {tile.x, tile.y, to_round.d / 128};
    places.row[t] = at < 0 ? -1 : at - tile.x;
  }
  round_row(to_round, row, part, places, topk);
}

size_t align(size_t bytes) { return (bytes + 255) / 256 * 256; }

template <typename T>
void cut(char*& at, T*& array, size_t count) {
  array = reinterpret_cast<T*>(at);
  at += align(count * sizeof(T));
}

char* cut_plan(RowPlan& plan, char* at, int rows, int topk, int slots, int experts, bool fp8) {
  const int choices = rows * topk;
  plan.max_tile_rows = choices <= 40 * experts ? kMaxNarrowTileRows : fp8 ? kMaxTileRows8 : kMaxTileRows;
  plan.row_capacity = round_up(choices, 8) + 8 * (slots < choices ? slots : choices);
  plan.tile_capacity = plan.row_capacity / plan.max_tile_rows + (slots < choices ? slots : choices) + 1;
  cut(at, plan.row_token, plan.row_capacity);
  cut(at, plan.row_weight, plan.row_capacity);
  cut(at, plan.pair_row, choices);
  cut(at, plan.pair_tile, choices);
  cut(at, plan.tiles, plan.tile_capacity);
  cut(at, plan.done, plan.tile_capacity);
  cut(at, plan.rounded, plan.tile_capacity);
  cut(at, plan.tile_count, 1);
  cut(at, plan.next, 1);
  return at;
}

}  // namespace

size_t row_plan_bytes(int rows, int topk, int slots, int experts, bool fp8) {
  RowPlan plan;
  return static_cast<size_t>(cut_plan(plan, nullptr, rows, topk, slots, experts, fp8) - static_cast<char*>(nullptr));
}

RowPlan row_plan(void* block, int rows, int topk, int slots, int experts, bool fp8) {
  RowPlan plan;
  cut_plan(plan, static_cast<char*>(block), rows, topk, slots, experts, fp8);
  return plan;
}

void plan_rows(const RowPlan& plan, const int32_t* ids, const float* weights, int rows, int topk,
               const int32_t* slot_of, int slots, const RowsToRound& to_round, cudaStream_t stream) {
  if (to_round.d % 128 != 0) fail_shape("experts", "a multiple of 128 channels", to_round.d);
  if (to_round.x != nullptr && topk > kMostExperts) fail_shape("experts", "at most 32 experts a row", topk);
  if (slots > kPlanThreads) fail_shape("experts", "at most 1024 local experts", slots);
  const int choices = rows * topk, row_threads = round_up(to_round.d / 16, 32);
  if (row_threads > kPlanThreads) fail_shape("experts", "at most 16,384 channels", to_round.d);
  const bool round = to_round.x != nullptr;
  const auto shape = [&](int blocks, int threads, unsigned cluster = 1) {
    return LaunchShape{
        .grid = dim3(blocks), .block = dim3(threads), .stream = stream, .early = true, .cluster = cluster};
  };
  if (choices <= 2 * kPlanThreads) {
    launch("plan_kernel", plan_kernel, shape(round ? 1 + rows : 1, kPlanThreads), plan, ids, weights, choices, topk,
           slot_of, slots, to_round);
  } else {
    launch("group_kernel", group_kernel, shape(kPlanCluster, kPlanThreads, kPlanCluster), plan, ids, weights, choices,
           topk, slot_of, slots, round);
    if (round) launch("round_rows_kernel", round_rows_kernel, shape(rows, row_threads), plan, topk, to_round);
  }
}

}  // namespace hadal::cuda
