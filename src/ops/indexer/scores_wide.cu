// Index scores of many rows of a request on wgmma. Keys are the M side: a warpgroup decodes 128 of them into registers once
// and runs all rows past them. The 32 heads of four rows are the N side, in shared memory. While one block of 64 keys is
// multiplied, the products of the other are weighted and summed.
//
// Columns of a product are heads in an order that gives lane t of a quad the eight consecutive heads 8t .. 8t+7 of a row.
#include "ops/cuda/errors.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/indexer/kernels.cuh"
#include "ops/indexer/score_parts.cuh"

namespace hadal::cuda {
namespace {

constexpr int kHeads = 32, kDim = 128;
constexpr int kGroupKeys = 128, kTileKeys = 2 * kGroupKeys, kThreads = 256;
constexpr int kTileRows = 4, kColumns = kTileRows * kHeads;  // 128
constexpr int kRowsPerCta = 128;
constexpr int kBuffers = 3, kHalfBytes = kColumns * 128, kBufferBytes = 2 * kHalfBytes;

// Weighted sums of 64 keys x 4 rows from the dot products, to the scores. `entry` is the list entry of this lane's first key.
template <bool Official>
__device__ __forceinline__ void finish(const ScoreProblem& p, float (&dots)[kColumns / 2], int row0, int end, int entry) {
  const int lane = threadIdx.x % 32, t = lane % 4;
  float mine[2] = {};
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    const auto* w4 = reinterpret_cast<const float4*>(p.head_weights + int64_t{min(row0 + r, end - 1)} * kHeads + 8 * t);
    const float4 wa = w4[0], wb = w4[1];
    const float w[8] = {wa.x, wa.y, wa.z, wa.w, wb.x, wb.y, wb.z, wb.w};
    float* d = dots + 16 * r;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int v = 0; v < 4; ++v) d[4 * j + v] = head_product<Official>(w[2 * j + v % 2], d[4 * j + v]);
    // Ascending heads: the running sums visit t = 0, 1, 2, 3; what the other lanes compute meanwhile is discarded.
    float sum[2] = {};
#pragma unroll
    for (int turn = 0; turn < 4; ++turn)
#pragma unroll
      for (int key = 0; key < 2; ++key) {
        if (turn > 0) sum[key] = __shfl_sync(kFullWarp, sum[key], (lane & ~3) | (turn - 1));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum[key] += d[4 * j + 2 * key];
          sum[key] += d[4 * j + 2 * key + 1];
        }
      }
#pragma unroll
    for (int key = 0; key < 2; ++key) {  // lane t keeps row t
      const float done = __shfl_sync(kFullWarp, sum[key], lane | 3);
      if (t == r) mine[key] = done;
    }
  }
  const int row = row0 + t;
  if (row >= end) return;
  const int visible = p.lists.visible(row);
  float* out = p.scores + int64_t{row - p.first_row} * p.stride + entry;
  if (entry < visible) out[0] = Official ? round_bf16(mine[0]) : mine[0];
  if (entry + 8 < visible) out[8] = Official ? round_bf16(mine[1]) : mine[1];
}

template <bool Official>
__global__ void __launch_bounds__(kThreads, 1) wide_kernel(const __grid_constant__ ScoreProblem p) {
  extern __shared__ __align__(1024) uint8_t buffers[];
  const int group = __shfl_sync(kFullWarp, threadIdx.x / 128, 0);  // known to be the same in a warp
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_entry = blockIdx.x * kTileKeys;
  const int lane_entry = first_entry + group * kGroupKeys + 16 * warp + g;  // and + 8, + 64, + 72
  const int rows_begin = p.first_row + blockIdx.y * kRowsPerCta;
  const int rows_end = min(rows_begin + kRowsPerCta, p.first_row + p.row_count);

  int begin = rows_begin;
  while (begin < rows_end) {
    const int segment = p.lists.rows.segment[begin];
    const int end = min(rows_end, p.lists.rows.seg_begin[segment + 1]);
    const int visible = p.lists.visible(end - 1);
    if (first_entry >= visible) {
      begin = end;
      continue;
    }
    uint32_t keys[2][8][4];  // [64 keys][step of 16 channels]: the operand
#pragma unroll
    for (int block = 0; block < 2; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int e = lane_entry + 64 * block + 8 * half;
        uint32_t key[4][4] = {};
        if (e < visible) {
          const int64_t physical = physical_row(p.lists.segments, segment, p.lists.keys.page_rows, e);
          load_key<4>(p.lists.keys.rows + physical * p.lists.keys.row_bytes, t, key);
        }
#pragma unroll
        for (int b = 0; b < 4; ++b)
#pragma unroll
          for (int s = 0; s < 2; ++s) {
            keys[block][2 * b + s][half] = key[b][2 * s];
            keys[block][2 * b + s][2 + half] = key[b][2 * s + 1];
          }
      }

    const auto load = [&](int tile) {
      uint8_t* const to = buffers + tile % kBuffers * kBufferBytes;
#pragma unroll
      for (int i = 0; i < kBufferBytes / 16 / kThreads; ++i) {
        const int at = threadIdx.x + i * kThreads, column = at / 16, chunk = at % 16;
        const int row = min(begin + tile * kTileRows + column / kHeads, end - 1);
        const int head = 8 * (column % 8 / 2) + column % kHeads / 8 * 2 + column % 2;
        copy_async_16(to + chunk / 8 * kHalfBytes + column * 128 + ((chunk % 8) ^ (column & 7)) * 16,
                      p.query + (int64_t{row} * kHeads + head) * kDim + chunk * 8, true);
      }
    };
    const auto multiply = [&](float (&dots)[kColumns / 2], const uint32_t (&key)[8][4], int tile) {
      const uint32_t at = smem_address(buffers + tile % kBuffers * kBufferBytes);
      const uint64_t half[2] = {k_major_descriptor(at), k_major_descriptor(at + kHalfBytes)};
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < 8; ++s) Wgmma<kColumns>::rs(dots, key[s], half[s / 4] + 2 * (s % 4), s > 0);
      wgmma_commit();
    };

    const int tiles = (end - begin + kTileRows - 1) / kTileRows;
    float dots0[kColumns / 2], dots1[kColumns / 2];
    __syncthreads();  // the run before has left the buffers
    load(0);
    copy_async_commit();
    // Makes a tile's queries visible to the matrix unit and starts loading the next tile's. The buffer that this overwrites
    // was last read two tiles ago, which every thread has waited for before the barrier.
    const auto advance = [&](int tile) {
      copy_async_wait<0>();
      fence_async_shared();
      __syncthreads();
      if (tile + 1 < tiles) load(tile + 1);
      copy_async_commit();
    };
    for (int tile = 0; tile < tiles; ++tile) {
      advance(tile);
      // The second warpgroup weights its last block after the barrier, the first one before it: so they take turns with the
      // matrix unit. (Leaving a product running over the end of the loop makes ptxas serialise all of them, C7514.)
      if (group == 1 && tile > 0) finish<Official>(p, dots1, begin + (tile - 1) * kTileRows, end, lane_entry + 64);
      multiply(dots0, keys[0], tile);
      multiply(dots1, keys[1], tile);
      wgmma_wait<1>();
      finish<Official>(p, dots0, begin + tile * kTileRows, end, lane_entry);
      wgmma_wait<0>();
      if (group == 0) finish<Official>(p, dots1, begin + tile * kTileRows, end, lane_entry + 64);
    }
    if (group == 1) finish<Official>(p, dots1, begin + (tiles - 1) * kTileRows, end, lane_entry + 64);
    begin = end;
  }
}

template <bool Official>
void launch(CudaContext& context, const ScoreProblem& p) {
  HADAL_CUDA(cudaFuncSetAttribute(wide_kernel<Official>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBuffers * kBufferBytes));
  const dim3 grid((p.longest + kTileKeys - 1) / kTileKeys, (p.row_count + kRowsPerCta - 1) / kRowsPerCta);
  wide_kernel<Official><<<grid, kThreads, kBuffers * kBufferBytes, context.stream()>>>(p);
  HADAL_CUDA_LAUNCHED("index scores, wide");
}

}  // namespace

void launch_index_scores_wide(CudaContext& context, const ScoreProblem& p) {
  if (context.numerics() == Numerics::official)
    launch<true>(context, p);
  else
    launch<false>(context, p);
}

}  // namespace hadal::cuda
