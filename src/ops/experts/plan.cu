// Groups rows by expert before the matrix kernel and sums their outputs after it.
#include <cub/block/block_scan.cuh>

#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/experts/grouped.h"

namespace hadal::cuda {
namespace {

constexpr int kPlanThreads = 1024;  // also the largest number of local experts
constexpr int kChunk = 256;

__host__ __device__ constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }

// Cuts rows [row0, row0 + padded) of a slot into tiles of nearly equal size.
__device__ void cut_tiles(const RowPlan& plan, int slot, int row0, int padded, int tiles, int first) {
  const int n = tiles ? round_up((padded + tiles - 1) / tiles, 8) : 0;
  for (int i = 0; i < tiles; ++i) {
    plan.tiles[first + i] = {slot, row0 + i * n, min(n, padded - i * n), first, tiles};
    plan.done[first + i] = 0;
  }
}

// Rows of each slot known: where they begin, their tiles, their padding. Thread t is slot t. Returns the first row.
__device__ int lay_out(const RowPlan& plan, int rows, typename cub::BlockScan<int, kPlanThreads>::TempStorage& scan) {
  using Scan = cub::BlockScan<int, kPlanThreads>;
  const int t = threadIdx.x, padded = round_up(rows, 8), tiles = (padded + plan.max_tile_rows - 1) / plan.max_tile_rows;
  int row0, first, total_rows, total_tiles;
  Scan(scan).ExclusiveSum(padded, row0, total_rows);
  __syncthreads();
  Scan(scan).ExclusiveSum(tiles, first, total_tiles);
  cut_tiles(plan, t, row0, padded, tiles, first);
  for (int i = rows; i < padded; ++i) {
    plan.row_token[row0 + i] = 0;
    plan.row_weight[row0 + i] = 0;
  }
  if (t == 0) {
    *plan.tile_count = total_tiles;
    *plan.next = 0;
  }
  return row0;
}

__device__ __forceinline__ void place(const RowPlan& plan, int choice, int row, float weight, int topk) {
  plan.pair_row[choice] = row;
  if (row >= 0) {
    plan.row_token[row] = choice / topk;
    plan.row_weight[row] = weight;
  }
}

// Decode steps: one block counts, scans and places.
__global__ void __launch_bounds__(kPlanThreads) plan_kernel(RowPlan plan, const int32_t* ids, const float* weights,
                                                            int choices, int topk, const int32_t* slot_of, int slots) {
  __shared__ typename cub::BlockScan<int, kPlanThreads>::TempStorage scan;
  __shared__ int count[kPlanThreads];
  const int t = threadIdx.x;
  count[t] = 0;
  wait_for_previous();
  let_next_start();
  __syncthreads();
  for (int i = t; i < choices; i += kPlanThreads) {
    const int slot = slot_of[ids[i]];
    if (slot >= 0) atomicAdd(&count[slot], 1);
  }
  __syncthreads();
  const int row0 = lay_out(plan, t < slots ? count[t] : 0, scan);
  __syncthreads();
  count[t] = row0;
  __syncthreads();
  for (int i = t; i < choices; i += kPlanThreads) {
    const int slot = slot_of[ids[i]];
    place(plan, i, slot < 0 ? -1 : atomicAdd(&count[slot], 1), weights[i], topk);
  }
}

// Prefill steps: the same in three launches, one choice a thread. One block took 0.06 ms for 24,576 choices, 2% of the
// products. plan.count is zero at the start.
__global__ void __launch_bounds__(kChunk)
    count_kernel(RowPlan plan, const int32_t* ids, int choices, const int32_t* slot_of, int slots) {
  __shared__ int count[kPlanThreads];
  for (int i = threadIdx.x; i < slots; i += kChunk) count[i] = 0;
  __syncthreads();
  const int i = blockIdx.x * kChunk + threadIdx.x;
  const int slot = i < choices ? slot_of[ids[i]] : -1;
  if (slot >= 0) atomicAdd(&count[slot], 1);
  __syncthreads();
  for (int k = threadIdx.x; k < slots; k += kChunk)
    if (count[k] != 0) atomicAdd(&plan.count[k], count[k]);
}

__global__ void __launch_bounds__(kPlanThreads) lay_out_kernel(RowPlan plan, int slots) {
  __shared__ typename cub::BlockScan<int, kPlanThreads>::TempStorage scan;
  const int t = threadIdx.x;
  const int row0 = lay_out(plan, t < slots ? plan.count[t] : 0, scan);
  if (t < slots) plan.count[t] = row0;  // from here on: the next free row
}

__global__ void __launch_bounds__(kChunk) place_kernel(RowPlan plan, const int32_t* ids, const float* weights,
                                                       int choices, int topk, const int32_t* slot_of, int slots) {
  __shared__ int count[kPlanThreads];
  for (int i = threadIdx.x; i < slots; i += kChunk) count[i] = 0;
  __syncthreads();
  const int i = blockIdx.x * kChunk + threadIdx.x;
  const int slot = i < choices ? slot_of[ids[i]] : -1;
  const int rank = slot >= 0 ? atomicAdd(&count[slot], 1) : 0;
  __syncthreads();
  for (int k = threadIdx.x; k < slots; k += kChunk)
    if (count[k] != 0) count[k] = atomicAdd(&plan.count[k], count[k]);
  __syncthreads();
  if (i < choices) place(plan, i, slot < 0 ? -1 : count[slot] + rank, weights[i], topk);
}

__device__ __forceinline__ void add8(float (&sum)[8], uint4 v) {
  const uint32_t u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] += __uint_as_float(u[i] << 16);
    sum[2 * i + 1] += __uint_as_float(u[i] & 0xffff0000u);
  }
}

// Eight channels a thread. The loads of a row's experts do not wait for each other.
template <int TopK>
__global__ void combine_kernel(const int* pair_row, const uint16_t* out, const uint16_t* shared_out, uint16_t* y,
                               int topk, int d) {
  wait_for_previous();
  let_next_start();
  const size_t row = blockIdx.x;
  const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
  if (channel >= d) return;
  float sum[8] = {};
  if constexpr (TopK > 0) {
    uint4 v[TopK];
#pragma unroll
    for (int k = 0; k < TopK; ++k) {
      const int from = pair_row[row * TopK + k];
      v[k] = from < 0 ? make_uint4(0, 0, 0, 0)
                      : __ldcs(reinterpret_cast<const uint4*>(out + static_cast<size_t>(from) * d + channel));
    }
#pragma unroll
    for (int k = 0; k < TopK; ++k) add8(sum, v[k]);
  } else {
    for (int k = 0; k < topk; ++k) {
      const int from = pair_row[row * topk + k];
      if (from >= 0) add8(sum, *reinterpret_cast<const uint4*>(out + static_cast<size_t>(from) * d + channel));
    }
  }
  if (shared_out) add8(sum, *reinterpret_cast<const uint4*>(shared_out + row * d + channel));
  *reinterpret_cast<uint4*>(y + row * d + channel) =
      make_uint4(pack_bf16x2(sum[0], sum[1]), pack_bf16x2(sum[2], sum[3]), pack_bf16x2(sum[4], sum[5]),
                 pack_bf16x2(sum[6], sum[7]));
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
  cut(at, plan.tiles, plan.tile_capacity);
  cut(at, plan.done, plan.tile_capacity);
  cut(at, plan.tile_count, 1);
  cut(at, plan.next, 1);
  cut(at, plan.count, kPlanThreads);
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
               const int32_t* slot_of, int slots, cudaStream_t stream) {
  if (slots > kPlanThreads) fail_shape("experts", "at most 1024 local experts", slots);
  const int choices = rows * topk, chunks = (choices + kChunk - 1) / kChunk;
  if (choices <= 2 * kPlanThreads) {
    launch("plan_kernel", plan_kernel, {.grid = dim3(1), .block = dim3(kPlanThreads), .stream = stream, .early = true},
           plan, ids, weights, choices, topk, slot_of, slots);
  } else {
    HADAL_CUDA(cudaMemsetAsync(plan.count, 0, slots * sizeof(int), stream));
    count_kernel<<<chunks, kChunk, 0, stream>>>(plan, ids, choices, slot_of, slots);
    lay_out_kernel<<<1, kPlanThreads, 0, stream>>>(plan, slots);
    place_kernel<<<chunks, kChunk, 0, stream>>>(plan, ids, weights, choices, topk, slot_of, slots);
  }
  HADAL_CUDA_LAUNCHED("plan_kernel");
}

void combine_rows(const int* pair_row, const uint16_t* out, const uint16_t* shared_out, uint16_t* y, int rows, int topk,
                  int d, cudaStream_t stream) {
  if (rows == 0) return;
  const int threads = 128;
  const dim3 grid(rows, (d / 8 + threads - 1) / threads);
  launch("combine_kernel", topk == 6 ? combine_kernel<6> : combine_kernel<0>,
         {.grid = grid, .block = dim3(threads), .stream = stream, .early = true}, pair_row, out, shared_out, y, topk,
         d);
}

}  // namespace hadal::cuda
