// Index scores of one row at a time: few rows a request, or rows with candidate lists, which have keys of their own. Warps
// work alone: a warp keeps its row's queries in registers and decodes 16 keys at a time past them.
#include <algorithm>
#include <cmath>

#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/indexer/int8.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRun = 8;           // neighbouring entries that are neighbouring rows of the cache
constexpr int kWarpEntries = 32;  // entries of a warp at a time, and a row of neighbouring scores in memory
constexpr int kStep = kWarps * kWarpEntries;
constexpr int kMostEntries = 16384;  // of a block

template <bool Official>
__global__ void __launch_bounds__(kThreads, 2) narrow_kernel(const __grid_constant__ ScoreProblem p, int entries) {
  // Of every run: the physical row, and how many of its entries are visible (all but in the end of a list's last block).
  __shared__ __align__(8) int32_t physical[kMostEntries / kRun];
  __shared__ uint8_t seen[kMostEntries / kRun];
  wait_for_previous();
  let_next_start();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = p.first_row + blockIdx.y, first = blockIdx.x * entries;
  const int blocks = p.lists.blocks(row), length = p.lists.length(row), visible = p.lists.visible(row);
  if (first >= length) return;
  const int count = min(length - first, entries);
  for (int i = threadIdx.x; i < entries / kRun; i += kThreads) {
    // Entries past the end read the first one's key; their scores are not stored.
    const int group = p.lists.group(row, blocks, first + (i * kRun < count ? i * kRun : 0));
    physical[i] =
        static_cast<int32_t>(physical_row(p.lists.segments, p.lists.rows.segment[row], p.lists.keys.page_rows, group));
    seen[i] = static_cast<uint8_t>(min(max(visible - group, 0), kRun));
  }
  const uint8_t* codes = p.int8.codes + int64_t{row / kInt8TileRows} * kInt8TileBytes;
  const float* weights = p.int8.weights + int64_t{row} * kWeightStride;
  uint32_t query[4][4][2];  // [8 heads][step of 32 channels][half]
  float w[8];
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int c = 0; c < 8; ++c) query[j][c / 2][c % 2] = query_word(codes, row, 8 * (g / 2) + 2 * j + g % 2, c, t);
#pragma unroll
  for (int i = 0; i < 8; ++i) w[i] = weights[8 * t + i];
  const bool careful_row = weights[kInt8Heads] != 0;
  __syncthreads();

  // Opaque: the compiler would find these again in every turn.
  const uint8_t* codes_of_key = p.lists.keys.rows + g * kInt8KeyBytes + 16 * t;
  const uint8_t* scales_of_key = p.lists.keys.rows + g * kInt8KeyBytes + 64;
  asm volatile("" : "+l"(codes_of_key), "+l"(scales_of_key));
  const auto load = [&](uint32_t at, PackedKey(&key)[2]) {  // 16 entries from `first + at` on
    const int2 run = *reinterpret_cast<const int2*>(physical + at / kRun);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint64_t offset = uint64_t{static_cast<uint32_t>(h == 0 ? run.x : run.y)} * kInt8KeyBytes;
      const auto* of = reinterpret_cast<const uint32_t*>(codes_of_key + offset);
#pragma unroll
      for (int s = 0; s < 4; ++s) key[h].codes[s] = __ldg(of + s);
      key[h].scales = __ldg(reinterpret_cast<const uint32_t*>(scales_of_key + offset));
    }
  };
  const auto score = [&](const PackedKey(&key)[2], float& first_key, float& second_key) {
    const KeyScales scales[2] = {fast_key_scales(key[0].scales), fast_key_scales(key[1].scales)};
    if (__any_sync(kFullWarp, careful_row || !all_fast(scales[0], scales[1]))) {
      float careful[2];
      careful_scores<Official>(codes, row, weights, p.int8.relative + int64_t{row} * kInt8Heads, key, careful);
      first_key = careful[0];
      second_key = careful[1];
      return;
    }
    const Int8Values values[2] = {int8_values(scales[0].shift >> 8 * t & 0xff),
                                  int8_values(scales[1].shift >> 8 * t & 0xff)};
    int dots[4][4] = {};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      uint32_t a[4];
      codes_to_int8(key[0].codes[s], values[0], a[0], a[2]);
      codes_to_int8(key[1].codes[s], values[1], a[1], a[3]);
#pragma unroll
      for (int j = 0; j < 4; ++j) mma_int8(dots[j], a[0], a[1], a[2], a[3], query[j][s][0], query[j][s][1]);
    }
    float sum[2] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int v = 0; v < 4; ++v) sum[v / 2] = add_head<Official>(sum[v / 2], w[2 * j + v % 2], dots[j][v]);
    first_key = sum[0] * score_factor<Official>(scales[0].base);
    second_key = sum[1] * score_factor<Official>(scales[1].base);
  };

  float* out = p.scores + int64_t{blockIdx.y} * p.stride + first + warp * kWarpEntries + 8 * t + g;
  float* best = p.best + int64_t{blockIdx.y} * (p.stride / kRun) + (first + warp * kWarpEntries) / kRun + t;
  asm volatile("" : "+l"(out), "+l"(best));
  PackedKey key[2][2];  // the first and the second 16 entries of the warp
  load(warp * kWarpEntries, key[0]);
  load(warp * kWarpEntries + 16, key[1]);
  for (int at = warp * kWarpEntries; at < count; at += kStep, out += kStep, best += kStep / kRun) {
    float part[4];
    const uint32_t next = min(at + kStep, entries - kWarpEntries);  // within the list of runs
    score(key[0], part[0], part[1]);
    load(next, key[0]);
    score(key[1], part[2], part[3]);
    load(next + 16, key[1]);
    float total = sum_quads(part);  // of entry 8t + g
    if constexpr (Official) total = round_bf16(total);
    const bool there = at + 8 * t + g < count;
    if (!there || g >= seen[static_cast<uint32_t>(at) / kRun + t]) total = -INFINITY;
    if (there) *out = total;
    float top = total;
#pragma unroll
    for (int other = 4; other < 32; other *= 2) top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, other));
    if (g == 0 && there) *best = top;
  }
}

}  // namespace

void launch_index_scores_narrow(cudaStream_t stream, const ScoreProblem& p) {
  HADAL_CUDA_CHECK(p.granule == kRun);
  // As many entries a block as leave every multiprocessor several blocks; scores do not depend on it.
  const int64_t wanted = int64_t{p.longest} * p.row_count / 1024;
  const int entries = static_cast<int>(std::clamp<int64_t>(wanted / kStep * kStep, kStep, kMostEntries));
  const dim3 grid((p.longest + entries - 1) / entries, p.row_count);
  launch("index scores, narrow", p.official ? narrow_kernel<true> : narrow_kernel<false>,
         {.grid = grid, .block = dim3(kThreads), .stream = stream, .early = true}, p, entries);
}

}  // namespace hadal::cuda
