// Index scores of many rows of a request on wgmma. Keys are the M side: a warpgroup decodes 64 of them into registers once
// and runs all rows past them. The 32 heads of four rows are the N side, in shared memory. Four warpgroups take turns with
// the matrix unit: while one multiplies, the others weight and sum their products.
#include <cmath>

#include "ops/cuda/errors.h"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/indexer/int8.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 16, kWarpKeys = 16, kTileKeys = kWarps * kWarpKeys, kThreads = 32 * kWarps;
constexpr int kTileRows = kPaddingRows + 1, kColumns = kTileRows * kInt8Heads;  // 128
constexpr int kRowsPerCta = 128;
constexpr int kStages = 8, kAhead = 6;
constexpr int kTileBytes = kTileRows * kInt8RowBytes;

struct Shared {
  uint8_t query[kStages][kTileBytes];
  float weights[kStages][kTileRows * kWeightStride];
  uint64_t full[kStages], empty[kStages];
  uint32_t careful_tiles;  // of a run of rows, a bit each
};
static_assert(kRowsPerCta / kTileRows <= 32);

// Weighted sums of 16 keys x 4 rows from the dot products: score[h] is that of key g + 8h and row t.
template <bool Official>
__device__ __forceinline__ void sum_heads(const int (&dots)[kColumns / 2], const float* weights, float (&score)[2]) {
  const int t = threadIdx.x % 4;
  float sum[2][kTileRows] = {};
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    const auto* w4 = reinterpret_cast<const float4*>(weights + r * kWeightStride + 8 * t);
    const float4 wa = w4[0], wb = w4[1];
    const float w[8] = {wa.x, wa.y, wa.z, wa.w, wb.x, wb.y, wb.z, wb.w};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int v = 0; v < 4; ++v)
        sum[v / 2][r] = add_head<Official>(sum[v / 2][r], w[2 * j + v % 2], dots[16 * r + 4 * j + v]);
  }
  score[0] = sum_quads(sum[0]);
  score[1] = sum_quads(sum[1]);
}

// One thread brings a tile of a run of rows.
__device__ __forceinline__ void load_rows(Shared& s, const ScoreProblem& p, int64_t row, int use) {
  const int stage = use % kStages;
  if (use >= kStages) mbarrier_wait(&s.empty[stage], (use / kStages - 1) & 1);
  mbarrier_arrive_expect(&s.full[stage], kTileBytes + sizeof s.weights[0]);
  bulk_copy(s.query[stage], p.int8.codes + row * kInt8RowBytes, kTileBytes, &s.full[stage]);
  bulk_copy(s.weights[stage], p.int8.weights + row * kWeightStride, sizeof s.weights[0], &s.full[stage]);
}

template <bool Official, int Granule>
__global__ void __launch_bounds__(kThreads, 1) wide_kernel(const __grid_constant__ ScoreProblem p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& s = *reinterpret_cast<Shared*>(shared_bytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_entry = blockIdx.x * kTileKeys;
  // The warp's keys are warp_entry .. + 15, the lane's + g and + 8 + g.
  const int warp_entry = first_entry + warp * kWarpKeys;
  const int rows_begin = p.first_row + blockIdx.y * kRowsPerCta;
  const int rows_end = min(rows_begin + kRowsPerCta, p.first_row + p.row_count);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], kWarps);
    }
    mbarrier_init_fence();
  }

  int used = 0;  // tiles of earlier runs of rows
  for (int begin = rows_begin, end; begin < rows_end; begin = end) {
    const int segment = p.lists.rows.segment[begin];
    end = min(rows_end, p.lists.rows.seg_begin[segment + 1]);
    const int visible = p.lists.visible(end - 1), tiles = (end - begin + kTileRows - 1) / kTileRows;
    if (first_entry >= visible) continue;
    const bool all_visible = first_entry + kTileKeys <= p.lists.visible(begin);
    const auto packed = [&](int half) {
      const int e = warp_entry + 8 * half + g;
      if (e >= visible) return PackedKey{{0, 0, 0, 0}, 0x7f7f7f7fu};
      const int64_t row = physical_row(p.lists.segments, segment, p.lists.keys.page_rows, e);
      return load_packed_key(p.lists.keys.rows, static_cast<uint32_t>(row), t);
    };
    if (threadIdx.x == 0) s.careful_tiles = 0;
    __syncthreads();
    if (threadIdx.x < kRowsPerCta) {
      const int row = begin + threadIdx.x;
      if (row < end && p.int8.weights[int64_t{row} * kWeightStride + kInt8Heads] != 0)
        atomicOr(&s.careful_tiles, 1u << threadIdx.x / kTileRows);
    }
    uint32_t keys[4][4];  // [block of 32 channels]: the operand
    float factor[2];
    bool careful_key = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const PackedKey key = packed(half);
      const KeyScales scales = key_scales(key.scales);
      careful_key |= scales.base < 0;
      factor[half] = score_factor<Official>(scales.base);
#pragma unroll
      for (int b = 0; b < 4; ++b)
        codes_to_int8(key.codes[b], scales.shift >> 8 * b & 0xff, keys[b][half], keys[b][2 + half]);
    }
    const uint32_t careful = __syncthreads_or(careful_key) != 0 ? 0xffffffffu : s.careful_tiles;
    if (threadIdx.x == 0)
      for (int tile = 0; tile < min(kAhead, tiles); ++tile) load_rows(s, p, begin + tile * kTileRows, used + tile);
    float* out = p.scores + int64_t{begin - p.first_row + t} * p.stride + warp_entry + g;
    float* best = p.best + int64_t{begin - p.first_row + t} * (p.stride / Granule) + warp_entry / Granule;
    for (int tile = 0; tile < tiles; ++tile) {
      const int use = used + tile, stage = use % kStages;
      if (threadIdx.x == 0 && tile + kAhead < tiles) load_rows(s, p, begin + (tile + kAhead) * kTileRows, use + kAhead);
      mbarrier_wait(&s.full[stage], use / kStages & 1);
      float score[2];  // of key 8 half + g and row t
      if ((careful >> tile & 1) == 0) {
        int dots[kColumns / 2];
        const uint64_t query = k_major_descriptor(smem_address(s.query[stage]));
        wgmma_fence();
#pragma unroll
        for (int b = 0; b < 4; ++b) wgmma_int8_n128(dots, keys[b], query + 2 * b, b > 0);
        wgmma_commit();
        wgmma_wait<0>();
        sum_heads<Official>(dots, s.weights[stage], score);
        score[0] *= factor[0];
        score[1] *= factor[1];
      } else {
        float part[2][kTileRows];
        const PackedKey key[2] = {packed(0), packed(1)};
#pragma unroll
        for (int r = 0; r < kTileRows; ++r) {
          float two[2];
          careful_scores<Official>(s.query[stage] + r * kInt8RowBytes, s.weights[stage] + r * kWeightStride,
                                   p.int8.relative + int64_t{min(begin + tile * kTileRows + r, end - 1)} * kInt8Heads,
                                   key, two);
          part[0][r] = two[0];
          part[1][r] = two[1];
        }
        score[0] = sum_quads(part[0]);
        score[1] = sum_quads(part[1]);
      }
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.empty[stage]);

      const int row = begin + tile * kTileRows + t;
      if constexpr (Official) score[0] = round_bf16(score[0]), score[1] = round_bf16(score[1]);
      if (!all_visible) {
        const int seen = (row < end ? p.lists.visible(row) : 0) - warp_entry - g;
        if (seen <= 0) score[0] = -INFINITY;
        if (seen <= 8) score[1] = -INFINITY;
      }
      const auto top = [&](float v) {
#pragma unroll
        for (int other = 4; other < 32; other *= 2) v = fmaxf(v, __shfl_xor_sync(kFullWarp, v, other));
        return v;
      };
      float v[2];
      if constexpr (Granule == kWarpKeys) {
        v[0] = top(fmaxf(score[0], score[1]));
      } else {
        v[0] = top(score[0]);
        v[1] = top(score[1]);
      }
      if (row < end) {
        out[0] = score[0];
        out[8] = score[1];
        if (g == 0) {
          best[0] = v[0];
          if constexpr (Granule != kWarpKeys) best[1] = v[1];
        }
      }
      out += kTileRows * p.stride;
      best += kTileRows * (p.stride / Granule);
    }
    used += tiles;
  }
}

template <bool Official, int Granule>
void launch(cudaStream_t stream, const ScoreProblem& p) {
  static const cudaError_t prepared =
      cudaFuncSetAttribute(wide_kernel<Official, Granule>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  HADAL_CUDA(prepared);
  const dim3 grid((p.longest + kTileKeys - 1) / kTileKeys, (p.row_count + kRowsPerCta - 1) / kRowsPerCta);
  wide_kernel<Official, Granule><<<grid, kThreads, sizeof(Shared), stream>>>(p);
  HADAL_CUDA_LAUNCHED("index scores, wide");
}

}  // namespace

void launch_index_scores_wide(cudaStream_t stream, const ScoreProblem& p) {
  HADAL_CUDA_CHECK(p.granule == 8 || p.granule == kWarpKeys);
  if (p.official)
    p.granule == 8 ? launch<true, 8>(stream, p) : launch<true, kWarpKeys>(stream, p);
  else
    p.granule == 8 ? launch<false, 8>(stream, p) : launch<false, kWarpKeys>(stream, p);
}

}  // namespace hadal::cuda
