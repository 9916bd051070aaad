// Index scores of one row at a time: few rows a request, or rows with candidate lists, which have keys of their own. Warps
// work alone: a warp keeps its row's queries in registers and decodes 16 keys at a time past them.
#include <algorithm>
#include <cmath>

#include "ops/cuda/errors.h"
#include "ops/cuda/row.cuh"
#include "ops/indexer/int8.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRun = 8;           // neighbouring entries that are neighbouring rows of the cache
constexpr int kWarpEntries = 32;  // entries of a warp at a time, and a row of neighbouring scores in memory
constexpr int kStep = kWarps * kWarpEntries;
constexpr int kMostEntries = 4096;  // of a block

template <bool Official>
__global__ void __launch_bounds__(kThreads, 2) narrow_kernel(const __grid_constant__ ScoreProblem p, int entries) {
  __shared__ int32_t physical[kMostEntries / kRun];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = p.first_row + blockIdx.y, first = blockIdx.x * entries;
  const int blocks = p.lists.blocks(row), length = p.lists.length(row), visible = p.lists.visible(row);
  if (first >= length) return;
  const int end = min(length, first + entries);
  for (int i = threadIdx.x; i < entries / kRun; i += kThreads) {
    // Entries past the end read the first one's key; their scores are not stored.
    const int e = first + i * kRun < end ? first + i * kRun : first;
    physical[i] = static_cast<int32_t>(physical_row(p.lists.segments, p.lists.rows.segment[row], p.lists.keys.page_rows,
                                                    p.lists.group(row, blocks, e)));
  }
  const uint8_t* codes = p.int8.codes + int64_t{row} * kInt8RowBytes;
  const float* weights = p.int8.weights + int64_t{row} * kWeightStride;
  uint32_t query[4][4][2];  // [8 columns][block of 32 channels][half]
  float w[8];
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int b = 0; b < 8; ++b) query[j][b / 2][b % 2] = query_word(codes, 8 * j + g, b, t);
#pragma unroll
  for (int i = 0; i < 8; ++i) w[i] = weights[8 * t + i];
  const bool careful_row = weights[kInt8Heads] != 0;
  __syncthreads();

  const auto load = [&](int at, PackedKey(&key)[2]) {  // 16 entries from `first + at` on
#pragma unroll
    for (int h = 0; h < 2; ++h)
      key[h] = load_packed_key(p.lists.keys.rows, static_cast<uint32_t>(physical[at / kRun + h] + g), t);
  };
  const auto score = [&](const PackedKey(&key)[2], float& first_key, float& second_key) {
    const KeyScales scales[2] = {key_scales(key[0].scales), key_scales(key[1].scales)};
    if (__any_sync(kFullWarp, careful_row || scales[0].base < 0 || scales[1].base < 0)) {
      float careful[2];
      careful_scores<Official>(codes, weights, p.int8.relative + int64_t{row} * kInt8Heads, key, careful);
      first_key = careful[0];
      second_key = careful[1];
      return;
    }
    int dots[4][4] = {};
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      uint32_t a[4];
      codes_to_int8(key[0].codes[b], scales[0].shift >> 8 * b & 0xff, a[0], a[2]);
      codes_to_int8(key[1].codes[b], scales[1].shift >> 8 * b & 0xff, a[1], a[3]);
#pragma unroll
      for (int j = 0; j < 4; ++j) mma_int8(dots[j], a[0], a[1], a[2], a[3], query[j][b][0], query[j][b][1]);
    }
    float sum[2] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int v = 0; v < 4; ++v) sum[v / 2] = add_head<Official>(sum[v / 2], w[2 * j + v % 2], dots[j][v]);
    first_key = sum[0] * score_factor<Official>(scales[0].base);
    second_key = sum[1] * score_factor<Official>(scales[1].base);
  };

  float* const out = p.scores + int64_t{blockIdx.y} * p.stride;
  float* const best = p.best + int64_t{blockIdx.y} * (p.stride / kRun);
  PackedKey fresh[2];
  const int steps = (end - first + kStep - 1) / kStep;
  load(warp * kWarpEntries, fresh);
  for (int step = 0; step < steps; ++step) {
    const int at = step * kStep + warp * kWarpEntries;
    float part[4];
    PackedKey key[2] = {fresh[0], fresh[1]};
    load(at + 16, fresh);
    score(key, part[0], part[1]);
    key[0] = fresh[0], key[1] = fresh[1];
    if (step + 1 < steps) load(at + kStep, fresh);
    score(key, part[2], part[3]);
    float total = sum_quads(part);  // of entry 8t + g
    if constexpr (Official) total = round_bf16(total);
    const int e = first + at + 8 * t + g;
    // A list's entries are visible but for the end of its last block.
    if (e >= end || (blocks >= 0 && p.lists.group(row, blocks, e) >= visible)) total = -INFINITY;
    if (e < end) out[e] = total;
    float top = total;
#pragma unroll
    for (int other = 4; other < 32; other *= 2) top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, other));
    if (g == 0 && e < end) best[e / kRun] = top;
  }
}

}  // namespace

void launch_index_scores_narrow(cudaStream_t stream, const ScoreProblem& p) {
  HADAL_CUDA_CHECK(p.granule == kRun);
  // As many entries a block as leave every multiprocessor several blocks; scores do not depend on it.
  const int64_t wanted = int64_t{p.longest} * p.row_count / 1024;
  const int entries = static_cast<int>(std::clamp<int64_t>(wanted / kStep * kStep, kStep, kMostEntries));
  const dim3 grid((p.longest + entries - 1) / entries, p.row_count);
  if (p.official)
    narrow_kernel<true><<<grid, kThreads, 0, stream>>>(p, entries);
  else
    narrow_kernel<false><<<grid, kThreads, 0, stream>>>(p, entries);
  HADAL_CUDA_LAUNCHED("index scores, narrow");
}

}  // namespace hadal::cuda
