// Index scores of one row at a time: few rows a request, or rows with candidate lists, which have keys of their own. A
// warpgroup decodes 64 keys at a time and multiplies them on wgmma with the row's 32 heads, which lie in shared memory.
#include <algorithm>
#include <cmath>

#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/indexer/int8.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRun = 8;           // neighbouring entries that are neighbouring rows of the cache
constexpr int kWarpEntries = 32;  // entries of a warp at a time, and a row of neighbouring scores in memory
constexpr int kStep = kWarps * kWarpEntries;
constexpr int kMostEntries = 16384;  // of a block

// D[64, 32] += A[64, 32] B[32, 32] in int32; A in registers.
__device__ __forceinline__ void wgmma_int8_n32(int (&d)[16], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
      "{%16,%17,%18,%19}, %20, p;\n}\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
        "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

template <bool Official>
__global__ void __launch_bounds__(kThreads, 2) narrow_kernel(const __grid_constant__ ScoreProblem p, int entries) {
  // Of every run: the physical row, and how many of its entries are visible (all but in the end of a list's last block).
  __shared__ __align__(8) int32_t physical[kMostEntries / kRun];
  __shared__ uint8_t seen[kMostEntries / kRun];
  __shared__ __align__(1024) uint8_t query[kInt8RowBytes];
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
  {  // Column 8j + 2t + i is head 8t + 2j + i: lane t gets eight consecutive heads.
    const int column = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const int from = query_column(row, column % 8 / 2 * 8 + column / 8 * 2 + column % 2);
    *reinterpret_cast<uint4*>(query + column * kInt8Dim + ((chunk ^ (column & 7)) << 4)) =
        *reinterpret_cast<const uint4*>(codes + from * kInt8Dim + ((chunk ^ (from & 7)) << 4));
    fence_async_shared();
  }
  float w[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) w[i] = weights[8 * t + i];
  const bool careful_row = weights[kInt8Heads] != 0;
  __syncthreads();

  // Opaque: the compiler would find these again in every turn.
  const uint8_t* codes_of_key = p.lists.keys.rows + g * kInt8KeyBytes + 16 * t;
  const uint8_t* scales_of_key = p.lists.keys.rows + g * kInt8KeyBytes + 64;
  asm volatile("" : "+l"(codes_of_key), "+l"(scales_of_key));
  // 16 entries: the lane's are g and 8 + g.
  const auto load = [&](uint32_t at, uint32_t(&codes_of)[2][4]) {
    const int2 run = *reinterpret_cast<const int2*>(physical + at / kRun);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint64_t offset = uint64_t{static_cast<uint32_t>(h == 0 ? run.x : run.y)} * kInt8KeyBytes;
#pragma unroll
      for (int s = 0; s < 4; ++s) codes_of[h][s] = __ldg(reinterpret_cast<const uint32_t*>(codes_of_key + offset) + s);
    }
  };
  // Of 32 entries a lane takes care of the scales of entry 8t + g, whose score it stores.
  const auto load_scales = [&](uint32_t at) {
    const uint64_t offset = uint64_t{static_cast<uint32_t>(physical[at / kRun + t])} * kInt8KeyBytes;
    return __ldg(reinterpret_cast<const uint32_t*>(scales_of_key + offset));
  };
  const uint64_t descriptor = k_major_descriptor(smem_address(query));
  // The lane's eight heads of 16 entries, without the scale that a key has left. shifts: of lane i of a quad, those of entry
  // 8i + g, with 4 in the upper half of every byte.
  const auto score = [&](const uint32_t(&codes_of)[2][4], uint32_t shifts, int first_lane, float& first_key,
                         float& second_key) {
    Int8Signed values[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t of_key = __shfl_sync(kFullWarp, shifts, (lane & ~3) + first_lane + h);
      // Byte t, which selects a power of two and, with the 4, zeros above it.
      values[h] = int8_signed(permute_bytes(0x08040201u, 0, permute_bytes(of_key, 0x44444444u, 0x4440u + t)));
    }
    int dots[16] = {};
    uint32_t a[4][2][4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      uint32_t low[2][2], high[2][2];
      codes_to_signed(codes_of[0][s], values[0], low[0], high[0]);
      codes_to_signed(codes_of[1][s], values[1], low[1], high[1]);
#pragma unroll
      for (int sign = 0; sign < 2; ++sign) {
        a[s][sign][0] = low[0][sign], a[s][sign][1] = low[1][sign];
        a[s][sign][2] = high[0][sign], a[s][sign][3] = high[1][sign];
      }
    }
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int sign = 0; sign < 2; ++sign) wgmma_int8_n32(dots, a[s][sign], descriptor + 2 * s, s + sign > 0);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(dots[i])::"memory");
    float sum[2] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int v = 0; v < 4; ++v) sum[v / 2] = add_head<Official>(sum[v / 2], w[2 * j + v % 2], dots[4 * j + v]);
    first_key = sum[0];
    second_key = sum[1];
  };

  float* out = p.scores + int64_t{blockIdx.y} * p.stride + first + warp * kWarpEntries + 8 * t + g;
  float* best = p.best + int64_t{blockIdx.y} * (p.stride / kRun) + (first + warp * kWarpEntries) / kRun + t;
  asm volatile("" : "+l"(out), "+l"(best));
  uint32_t key[2][2][4], scales;  // the first and the second 16 entries of the warp
  load(warp * kWarpEntries, key[0]);
  load(warp * kWarpEntries + 16, key[1]);
  scales = load_scales(warp * kWarpEntries);
  // The warps of a warpgroup multiply together.
  for (int base = 0; base < count; base += kStep, out += kStep, best += kStep / kRun) {
    const int at = base + warp * kWarpEntries;
    float part[4];
    const uint32_t next = min(at + kStep, entries - kWarpEntries);  // within the list of runs
    const KeyScales own = fast_key_scales(scales);
    const uint32_t shifts = own.shift | 0x40404040u, of_keys = scales;
    score(key[0], shifts, 0, part[0], part[1]);
    load(next, key[0]);
    score(key[1], shifts, 2, part[2], part[3]);
    load(next + 16, key[1]);
    scales = load_scales(next);
    float total = sum_quads(part) * score_factor<Official>(own.base);  // of entry 8t + g
    if (__any_sync(kFullWarp, careful_row || !all_fast(own, own))) {
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        uint32_t again[2][4];
        load(min(at, entries - kWarpEntries) + 16 * half, again);
        PackedKey packed[2];
        float two[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          for (int s = 0; s < 4; ++s) packed[h].codes[s] = again[h][s];
          packed[h].scales = __shfl_sync(kFullWarp, of_keys, (lane & ~3) + 2 * half + h);
        }
        careful_scores<Official>(codes, row, weights, p.int8.relative + int64_t{row} * kInt8Heads, packed, two);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (i / 2 == half) part[i] = two[i % 2];
      }
      total = sum_quads(part);
    }
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
