// Index scores of any number of heads, on the tensor cores in bf16. A warp keeps 32 keys, decoded to bf16, in registers and
// runs the queries of its rows past them: a key is read and decoded once for kQueryRows rows of a request.
//
// FP4 values times powers of two: a dot product is a sum of few-bit products, exact in fp32 unless block scales lie far
// apart. Heads are then added in ascending order.
#include <cmath>

#include "ops/cuda/codec.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/row.cuh"
#include "ops/indexer/kernels.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 4, kWarpKeys = 32, kTileKeys = kWarps * kWarpKeys;
constexpr int kQueryRows = 8;

// Eight FP4 codes (low nibble first) times a power of two, as four bf16 pairs. The codes are moved into a bf16 with a wrong
// exponent bias, which a multiplication by 2^126 repairs.
__device__ __forceinline__ void decode_fp4(uint32_t codes, uint8_t scale, uint32_t (&out)[4]) {
  constexpr uint32_t kBias = 0x7e807e80u;
  uint32_t s = ue8m0_to_bf16(scale);
  s |= s << 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t two = codes >> (8 * i);
    const uint32_t pair = (two & 0xfu) | ((two & 0xf0u) << 12);
    out[i] = multiply_bf16x2(multiply_bf16x2(((pair & 0x00070007u) << 6) | ((pair & 0x00080008u) << 12), kBias), s);
  }
}

// Channels 8t .. 8t+7 of every block of 32 of a key with Blocks * 32 channels.
template <int Blocks>
__device__ __forceinline__ void load_key(const uint8_t* row, int t, uint32_t (&out)[Blocks][4]) {
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    uint32_t codes;
    if constexpr (Blocks % 4 == 0) {  // rows of a multiple of 4 bytes
      codes = *reinterpret_cast<const uint32_t*>(row + 16 * b + 4 * t);
    } else {
      const uint8_t* c = row + 16 * b + 4 * t;
      codes = c[0] | (c[1] << 8) | (c[2] << 16) | (static_cast<uint32_t>(c[3]) << 24);
    }
    decode_fp4(codes, row[16 * Blocks + b], out[b]);
  }
}

// One head's share of a score. `official` rounds the dot product and the product.
template <bool Official>
__device__ __forceinline__ float head_product(float w, float dot) {
  if constexpr (Official) return round_bf16(w * fmaxf(round_bf16(dot), 0.0f));
  return w * fmaxf(dot, 0.0f);
}

// Lane (g, t) keeps, of keys 8 i + g (i = 0..3), channels 8t .. 8t+7 of every block of 32. Columns of the products are
// heads in an order that gives lane t the eight consecutive heads 8t .. 8t+7 of every 32.
template <int Blocks, bool Official>
__global__ void __launch_bounds__(32 * kWarps, 3) score_kernel(const ScoreProblem p) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_entry = blockIdx.x * kTileKeys + warp * kWarpKeys;
  const int row_begin = p.first_row + blockIdx.y * kQueryRows;
  const int row_end = min(row_begin + kQueryRows, p.first_row + p.row_count);
  const int padded = (p.heads + 31) / 32 * 32;

  uint32_t keys[4][Blocks][4];
  int begin = row_begin;
  while (begin < row_end) {
    // Rows with the same list prefix share keys: one request, no candidate list. Lists grow with the row.
    const int segment = p.lists.rows.segment[begin];
    const int count = p.lists.blocks(begin);
    int end = begin + 1;
    if (count < 0)
      while (end < row_end && p.lists.rows.segment[end] == segment && p.lists.blocks(end) < 0) ++end;
    const int length = p.lists.length(end - 1);
    if (first_entry >= length) {
      begin = end;
      continue;
    }
    const int visible = p.lists.visible(end - 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int e = first_entry + 8 * i + g;
      const int group = e < length ? p.lists.group(begin, count, e) : visible;
      if (group < visible) {
        const int64_t physical = physical_row(p.lists.segments, segment, p.lists.keys.page_rows, group);
        load_key<Blocks>(p.lists.keys.rows + physical * p.lists.keys.row_bytes, t, keys[i]);
      } else {
#pragma unroll
        for (int b = 0; b < Blocks; ++b)
#pragma unroll
          for (int v = 0; v < 4; ++v) keys[i][b][v] = 0;
      }
    }
    __syncwarp();

    for (int row = begin; row < end; ++row) {
      float sum[4] = {};  // of key 8 i + g; complete on lane t = 3
      for (int head0 = 0; head0 < padded; head0 += 32) {
        float dots[2][4][4] = {};  // [16 keys][8 heads]
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int head = head0 + 8 * (g / 2) + 2 * j + g % 2;
          const uint16_t* q = p.query + (int64_t{row} * p.heads + min(head, p.heads - 1)) * p.index_dim + 8 * t;
#pragma unroll
          for (int b = 0; b < Blocks; ++b) {
            const uint4 v = *reinterpret_cast<const uint4*>(q + 32 * b);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
              const auto &low = keys[2 * m][b], &high = keys[2 * m + 1][b];
              mma_bf16(dots[m][j], low[0], high[0], low[1], high[1], v.x, v.y);
              mma_bf16(dots[m][j], low[2], high[2], low[3], high[3], v.z, v.w);
            }
          }
        }
        // Products in place: head 8t + 2j + i of key 8 (2m + h) + g.
        const float4* w4 = reinterpret_cast<const float4*>(p.head_weights + int64_t{row} * padded + head0 + 8 * t);
        const float4 wa = w4[0], wb = w4[1];
        const float w[8] = {wa.x, wa.y, wa.z, wa.w, wb.x, wb.y, wb.z, wb.w};
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int v = 0; v < 4; ++v) { dots[m][j][v] = head_product<Official>(w[2 * j + v % 2], dots[m][j][v]); }
            // Ascending heads: the running sum visits t = 0, 1, 2, 3; what the other lanes compute meanwhile is discarded.
#pragma unroll
        for (int turn = 0; turn < 4; ++turn)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (turn > 0 || head0 > 0) sum[i] = __shfl_sync(kFullWarp, sum[i], (lane & ~3) | ((turn + 3) & 3));
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              sum[i] += dots[i / 2][j][i % 2 * 2];
              sum[i] += dots[i / 2][j][i % 2 * 2 + 1];
            }
          }
      }
      // Lane (g, t) stores key 8 t + g.
      float score = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float done = __shfl_sync(kFullWarp, sum[i], lane | 3);
        if (t == i) score = done;
      }
      if constexpr (Official) score = round_bf16(score);
      const int e = first_entry + 8 * t + g;
      if (e < p.lists.length(row)) {
        if (count >= 0 && p.lists.group(row, count, e) >= p.lists.visible(row)) score = -INFINITY;
        p.scores[int64_t{row - p.first_row} * p.stride + e] = score;
      }
    }
    begin = end;
  }
}

template <int Blocks>
void launch_blocks(cudaStream_t stream, const ScoreProblem& p) {
  const dim3 grid((p.longest + kTileKeys - 1) / kTileKeys, (p.row_count + kQueryRows - 1) / kQueryRows);
  if (p.official)
    score_kernel<Blocks, true><<<grid, 32 * kWarps, 0, stream>>>(p);
  else
    score_kernel<Blocks, false><<<grid, 32 * kWarps, 0, stream>>>(p);
  HADAL_CUDA_LAUNCHED("index scores");
}

}  // namespace

void launch_index_scores(cudaStream_t stream, const ScoreProblem& p) {
  switch (p.index_dim) {
    case 32: return launch_blocks<1>(stream, p);
    case 64: return launch_blocks<2>(stream, p);
    case 128: return launch_blocks<4>(stream, p);
    default: fail_shape("indexer", "an index dimension of 32, 64 or 128", p.index_dim);
  }
}

}  // namespace hadal::cuda
