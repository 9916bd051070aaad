// Index scores of many rows of a request on wgmma. Keys are the M side: a warpgroup decodes 64 of them into registers once
// and runs all rows past them. The 32 heads of four rows are the N side, in shared memory. Four warpgroups share the matrix
// unit: while one multiplies, the others weight and sum their products. Warps bring the rows in turn: when one of them always
// did, its warpgroup was the slowest, the others waited for it in step, and nothing overlapped.
#include <cmath>

#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/indexer/int8.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 16, kWarpKeys = 16, kTileKeys = kWarps * kWarpKeys, kThreads = 32 * kWarps;
constexpr int kColumns = kInt8TileRows * kInt8Heads;  // 128
constexpr int kStages = 8, kAhead = 4;                // a warp may be four tiles ahead of another

struct Shared {
  uint8_t query[kStages][kInt8TileBytes];
  float weights[kStages][kInt8TileRows * kWeightStride];
  uint64_t full[kStages], empty[kStages];
};

// The weighted sum of one key from the dot products, [8 columns][two of this key, two of the key 8 on].
template <bool Official>
__device__ __forceinline__ float sum_heads(const int (&dots)[kColumns / 2], const float (&w)[kInt8Heads], int half) {
  float run[4] = {};
#pragma unroll
  for (int h = 0; h < kInt8Heads; ++h)
    run[h / 8] = add_head<Official>(run[h / 8], w[h], dots[h / 2 * 4 + half * 2 + h % 2]);
  return (run[0] + run[1]) + (run[2] + run[3]);
}

// One thread brings a tile of rows.
__device__ __forceinline__ void load_rows(Shared& s, const ScoreProblem& p, int64_t tile, uint32_t use) {
  const uint32_t stage = use % kStages;
  if (use >= kStages) mbarrier_wait(&s.empty[stage], (use / kStages - 1) & 1);
  mbarrier_arrive_expect(&s.full[stage], kInt8TileBytes + sizeof s.weights[0]);
  bulk_copy(s.query[stage], p.int8.codes + tile * kInt8TileBytes, kInt8TileBytes, &s.full[stage]);
  bulk_copy(s.weights[stage], p.int8.weights + tile * (kInt8TileRows * kWeightStride), sizeof s.weights[0],
            &s.full[stage]);
}

template <bool Official, int Granule>
__global__ void __launch_bounds__(kThreads, 1) wide_kernel(const __grid_constant__ ScoreProblem p, int block_rows) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& s = *reinterpret_cast<Shared*>(shared_bytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_entry = blockIdx.x * kTileKeys;
  // The warp's keys are warp_entry .. + 15, the lane's + g and + 8 + g.
  const int warp_entry = first_entry + warp * kWarpKeys;
  const int rows_begin = p.first_row + blockIdx.y * block_rows;
  const int rows_end = min(rows_begin + block_rows, p.first_row + p.row_count);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], kWarps);
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  uint32_t used = 0;  // tiles of earlier runs of rows
  for (int begin = rows_begin, end; begin < rows_end; begin = end) {
    const int segment = p.lists.rows.segment[begin];
    end = min(rows_end, p.lists.rows.seg_begin[segment + 1]);
    const int visible = p.lists.visible(end - 1);
    // Tiles begin at multiples of four rows and may hold rows of other requests, whose results are dropped.
    const int first_tile = begin / kInt8TileRows, tiles = (end - 1) / kInt8TileRows + 1 - first_tile;
    if (first_entry >= visible) continue;
    const bool all_visible = first_entry + kTileKeys <= p.lists.visible(begin);
    const auto packed = [&](int half) {
      const int e = warp_entry + 8 * half + g;
      if (e >= visible) return PackedKey{{0, 0, 0, 0}, 0x7f7f7f7fu};
      const int64_t row = physical_row(p.lists.segments, segment, p.lists.keys.page_rows, e);
      return load_packed_key(p.lists.keys.rows, static_cast<uint32_t>(row), t);
    };
    if (lane == 0 && warp < min(kAhead, tiles)) load_rows(s, p, first_tile + warp, used + warp);
    uint32_t keys[4][4];  // [step of 32 channels]: the operand
    float factor[2];
    bool careful_key = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const PackedKey key = packed(half);
      const KeyScales scales = key_scales(key.scales);
      careful_key |= scales.base < 0;
      factor[half] = score_factor<Official>(scales.base);
      const Int8Values values = int8_values(scales.shift >> 8 * t & 0xff);
#pragma unroll
      for (int k = 0; k < 4; ++k) codes_to_int8(key.codes[k], values, keys[k][half], keys[k][2 + half]);
    }
    careful_key = __syncthreads_or(careful_key) != 0;
    // Stores the scores of key 8 half + g and a row. What is left is the largest of the warp's 16 keys or of either eight: of
    // the lane's two for now; `tell` asks the other lanes. Lanes of even g end up with the first eight's.
    struct Top {
      float own, other;
    };
    const auto keep = [&](float(&score)[2], int row, float* out) {
      const bool mine = row >= begin && row < end;
      if constexpr (Official) score[0] = round_bf16(score[0]), score[1] = round_bf16(score[1]);
      if (!all_visible) {
        const int seen = (mine ? p.lists.visible(row) : 0) - warp_entry - g;
        if (seen <= 0) score[0] = -INFINITY;
        if (seen <= 8) score[1] = -INFINITY;
      }
      if (mine) {
        out[0] = score[0];
        out[8] = score[1];
      }
      if constexpr (Granule == kWarpKeys) return Top{fmaxf(score[0], score[1]), 0};
      const bool odd = (g & 1) != 0;
      return Top{odd ? score[1] : score[0], odd ? score[0] : score[1]};
    };
    const auto largest = [&](const Top& top) {
      float v = fmaxf(top.own, __shfl_xor_sync(kFullWarp, Granule == kWarpKeys ? top.own : top.other, 4));
#pragma unroll
      for (int other = 8; other < 32; other *= 2) v = fmaxf(v, __shfl_xor_sync(kFullWarp, v, other));
      return v;
    };
    const auto tell = [&](float top, int row, float* best) {
      if (row >= begin && row < end && g < kWarpKeys / Granule) best[g] = top;
    };
    const int first_row = first_tile * kInt8TileRows + t;  // the lane's
    float* const first_out = p.scores + int64_t{first_row - p.first_row} * p.stride + warp_entry + g;
    float* const first_best = p.best + int64_t{first_row - p.first_row} * (p.stride / Granule) + warp_entry / Granule;
    uint32_t out_step = static_cast<uint32_t>(kInt8TileRows * p.stride);
    asm volatile("" : "+r"(out_step));  // or the compiler computes it in every turn
    int dots[kColumns / 2] = {};
    const auto multiply = [&](uint32_t stage) {
      const uint64_t query = k_major_descriptor(smem_address(s.query[stage]));
      wgmma_fence();
#pragma unroll
      for (int b = 0; b < 4; ++b) wgmma_int8_n128(dots, keys[b], query + 2 * b, b > 0);
      wgmma_commit();
    };
    mbarrier_wait(&s.full[used % kStages], used / kStages & 1);
    multiply(used % kStages);
    bool careful = careful_key;
    Top top{};
    int row = first_row;
    float *out = first_out, *best = first_best;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const uint32_t use = used + tile, stage = use % kStages;
      if (lane == 0 && warp == tile % kWarps && tile + kAhead < tiles)
        load_rows(s, p, first_tile + tile + kAhead, use + kAhead);
      float w[kInt8Heads];
      const float* weights = s.weights[stage] + t * kWeightStride;
      const auto read = [&](int i) {
        const float4 four = reinterpret_cast<const float4*>(weights)[i];
        w[4 * i] = four.x, w[4 * i + 1] = four.y, w[4 * i + 2] = four.z, w[4 * i + 3] = four.w;
      };
#pragma unroll
      for (int i = 0; i < 4; ++i) read(i);
      careful |= weights[kInt8Heads] != 0;
      wgmma_wait<0>();
#pragma unroll
      for (int i = 4; i < 8; ++i) read(i);
      // The exchange of the tile before, which takes long, among the sums.
      const float before = largest(top);
      float score[2] = {sum_heads<Official>(dots, w, 0) * factor[0], sum_heads<Official>(dots, w, 1) * factor[1]};
      // The next tile's products, so that what follows hides behind them. (After the last tile once more the same.)
      const uint32_t next = tile + 1 < tiles ? use + 1 : use;
      mbarrier_wait(&s.full[next % kStages], next / kStages & 1);
      multiply(next % kStages);
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.empty[stage]);
      if (tile > 0) tell(before, row - kInt8TileRows, best - out_step / Granule);
      top = keep(score, row, out);
      row += kInt8TileRows;
      out += out_step;
      best += out_step / Granule;
    }
    tell(largest(top), row - kInt8TileRows, best - out_step / Granule);
    wgmma_wait<0>();
    used += tiles;
    // What needs care is done again, seldom and slowly.
    if (!__any_sync(kFullWarp, careful)) continue;
    const PackedKey key[2] = {packed(0), packed(1)};
    for (int tile = 0; tile < tiles; ++tile) {
      const int64_t tile_row = int64_t{first_tile + tile} * kInt8TileRows;
      const float* weights = p.int8.weights + tile_row * kWeightStride;
      // Rows of other requests and past the last count too, whatever they hold.
      if (!__any_sync(kFullWarp, careful_key || weights[t * kWeightStride + kInt8Heads] != 0)) continue;
      float part[2][kInt8TileRows];
#pragma unroll 1
      for (int r = 0; r < kInt8TileRows; ++r) {
        float two[2];
        const int64_t of = min(max(tile_row + r, int64_t{begin}), int64_t{end - 1});  // a row that there is
        careful_scores<Official>(p.int8.codes + int64_t{first_tile + tile} * kInt8TileBytes, r,
                                 weights + r * kWeightStride, p.int8.relative + of * kInt8Heads, key, two);
#pragma unroll
        for (int i = 0; i < kInt8TileRows; ++i)
          if (i == r) part[0][i] = two[0], part[1][i] = two[1];
      }
      float score[2] = {sum_quads(part[0]), sum_quads(part[1])};
      const int of_lane = static_cast<int>(tile_row) + t;
      tell(largest(keep(score, of_lane, first_out + int64_t{tile} * out_step)), of_lane,
           first_best + int64_t{tile} * (out_step / Granule));
    }
  }
}

template <bool Official, int Granule>
void launch_wide(cudaStream_t stream, const ScoreProblem& p) {
  // Decoding keys and filling the pipeline shows once a block: many rows a block, as long as there are several blocks for
  // every multiprocessor. Scores do not depend on it.
  const int tiles = (p.longest + kTileKeys - 1) / kTileKeys;
  int block_rows = 128;
  while (block_rows < 1024 && int64_t{tiles} * (p.row_count / (2 * block_rows)) >= 3 * 132) block_rows *= 2;
  launch("index scores, wide", wide_kernel<Official, Granule>,
         {.grid = dim3(tiles, (p.row_count + block_rows - 1) / block_rows),
          .block = dim3(kThreads),
          .shared = sizeof(Shared),
          .stream = stream},
         p, block_rows);
}

}  // namespace

void launch_index_scores_wide(cudaStream_t stream, const ScoreProblem& p) {
  HADAL_CUDA_CHECK((p.granule == 8 || p.granule == kWarpKeys) && p.first_row % kInt8TileRows == 0);
  if (p.official)
    p.granule == 8 ? launch_wide<true, 8>(stream, p) : launch_wide<true, kWarpKeys>(stream, p);
  else
    p.granule == 8 ? launch_wide<false, 8>(stream, p) : launch_wide<false, kWarpKeys>(stream, p);
}

}  // namespace hadal::cuda
