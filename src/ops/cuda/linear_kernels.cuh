// The kernels behind linear.h, one instantiation a weight format (linear_bf16.cu, linear_fp8.cu, linear_mxfp4.cu).
//
// Fragments are read without a shuffle: of every row of W a lane takes 16 consecutive bytes (8, 16 or 32 values of k),
// of x the same values of k. The order of k inside a chunk thus differs from memory order, equally for W and x and in
// all kernels of a format.
#pragma once

#include "ops/cuda/codec.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/types.h"

namespace hadal::cuda {

struct LinearProblem {
  const uint16_t* x;
  int64_t x_stride;
  const int32_t* x_row;
  const uint8_t* w;
  const uint8_t* scale;
  int rows;
  int k;
  int group_n;  // outputs of one group
  int groups;
  int segment;   // length in k, a multiple of every kernel's step
  int segments;  // at most 8
  uint16_t* y;
  float* y_f32;
  int64_t y_stride;
  const float* add;
  float* partial;  // [segments, rows, groups * group_n] when segments run side by side
  int split;       // CTAs that share the segments of one tile
};

constexpr int kMaxSegments = 8;

template <WeightFormat F>
struct WeightTraits;
template <>
struct WeightTraits<WeightFormat::bf16> {
  static constexpr int lane_values = 8;  // values of k in 16 bytes
};
template <>
struct WeightTraits<WeightFormat::fp8_block32> {
  static constexpr int lane_values = 16;
};
template <>
struct WeightTraits<WeightFormat::mxfp4> {
  static constexpr int lane_values = 32;
};

// Values 4j .. 4j + 3 of a lane's 16 bytes as two bf16 pairs. The codes are moved into a bf16 with a wrong exponent
// bias; multiplying by 2^120 (e4m3) or 2^126 (e2m1) repairs it, also for subnormal codes, and the scale follows: both
// products are exact.
template <WeightFormat F>
__device__ __forceinline__ void decode(const uint32_t (&raw)[4], int j, uint32_t scale, uint32_t& b0, uint32_t& b1) {
  if constexpr (F == WeightFormat::bf16) {
    b0 = raw[2 * j];
    b1 = raw[2 * j + 1];
  } else if constexpr (F == WeightFormat::fp8_block32) {
    constexpr uint32_t kBias = 0x7b807b80u;  // 2^120 twice
    const uint32_t low = __byte_perm(raw[j], 0, 0x1404), high = __byte_perm(raw[j], 0, 0x3424);
    b0 = multiply_bf16x2(multiply_bf16x2(((low & 0x7f007f00u) >> 4) | (low & 0x80008000u), kBias), scale);
    b1 = multiply_bf16x2(multiply_bf16x2(((high & 0x7f007f00u) >> 4) | (high & 0x80008000u), kBias), scale);
  } else {
    constexpr uint32_t kBias = 0x7e807e80u;  // 2^126 twice
    const uint32_t codes = raw[j / 2] >> (16 * (j % 2));
    const uint32_t low = (codes & 0xfu) | ((codes & 0xf0u) << 12);
    const uint32_t high = ((codes & 0xf00u) >> 8) | ((codes & 0xf000u) << 4);
    b0 = multiply_bf16x2(multiply_bf16x2(((low & 0x00070007u) << 6) | ((low & 0x00080008u) << 12), kBias), scale);
    b1 = multiply_bf16x2(multiply_bf16x2(((high & 0x00070007u) << 6) | ((high & 0x00080008u) << 12), kBias), scale);
  }
}

// Row n (of all outputs) and 32-block of k that a scale belongs to.
template <WeightFormat F>
__device__ __forceinline__ int64_t scale_row(int64_t n) {
  return F == WeightFormat::fp8_block32 ? n / 32 : n;
}

__device__ __forceinline__ uint32_t scale_pair(uint8_t byte) {
  const uint32_t b = ue8m0_to_bf16(byte);
  return b | (b << 16);
}

__device__ __forceinline__ void store_output(const LinearProblem& p, int64_t row, int64_t n, float value) {
  const int64_t at = row * p.y_stride + n;
  if (p.y_f32 != nullptr)
    p.y_f32[at] = p.add != nullptr ? p.add[at] + value : value;
  else
    p.y[at] = to_bf16(value);
}

// ---- few rows (at most 16): a CTA makes 16 outputs, a warp one segment, straight from global memory --------------
template <WeightFormat F>
__global__ void __launch_bounds__(32 * kMaxSegments) linear_few(const LinearProblem p) {
  constexpr int E = WeightTraits<F>::lane_values;
  constexpr int kChunk = 4 * E, kUnits = E / 8;
  constexpr int kTiles = 2;
  constexpr int kAhead = F == WeightFormat::mxfp4 ? 2 : 4;  // chunks in flight

  wait_for_previous();
  let_next_start();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int tiles = (p.group_n + 8 * kTiles - 1) / (8 * kTiles);
  const int group = blockIdx.x / tiles, n0 = blockIdx.x % tiles * (8 * kTiles);

  const int64_t row_bytes = int64_t{16} * p.k / E, scale_cols = (p.k + 31) / 32;
  const uint8_t* w[kTiles];
  const uint8_t* scale[kTiles];
  bool n_valid[kTiles];
  for (int i = 0; i < kTiles; ++i) {
    const int local = n0 + 8 * i + g;
    n_valid[i] = local < p.group_n;
    const int64_t n = int64_t{group} * p.group_n + (n_valid[i] ? local : 0);
    w[i] = p.w + n * row_bytes;
    scale[i] = F == WeightFormat::bf16 ? nullptr : p.scale + scale_row<F>(n) * scale_cols;
  }
  const uint16_t* x[2];
  bool m_valid[2];
  for (int i = 0; i < 2; ++i) {
    const int m = g + 8 * i;
    m_valid[i] = m < p.rows;
    const int64_t row = m_valid[i] ? (p.x_row != nullptr ? p.x_row[m] : m) : 0;
    x[i] = p.x + row * p.x_stride + int64_t{group} * p.k;
  }

  float acc[kTiles][4] = {};
  const int end = min(p.k, (warp + 1) * p.segment);
  for (int k0 = warp * p.segment; k0 < end; k0 += kChunk * kAhead) {
    uint32_t raw[kAhead][kTiles][4], xa[kAhead][2][kUnits][4];
    uint32_t s[kAhead][kTiles];
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
      const int k = k0 + c * kChunk + t * E;
      const bool k_valid = k < end;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (k_valid && n_valid[i]) v = __ldcs(reinterpret_cast<const uint4*>(w[i] + int64_t{16} * k / E));
        raw[c][i][0] = v.x, raw[c][i][1] = v.y, raw[c][i][2] = v.z, raw[c][i][3] = v.w;
        s[c][i] = 0;
        if constexpr (F != WeightFormat::bf16)
          if (k_valid && n_valid[i]) s[c][i] = scale_pair(scale[i][k / 32]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          uint4 v = make_uint4(0, 0, 0, 0);
          if (k_valid && m_valid[i]) v = *reinterpret_cast<const uint4*>(x[i] + k + 8 * u);
          xa[c][i][u][0] = v.x, xa[c][i][u][1] = v.y, xa[c][i][u][2] = v.z, xa[c][i][u][3] = v.w;
        }
    }
#pragma unroll
    for (int c = 0; c < kAhead; ++c)
#pragma unroll
      for (int j = 0; j < E / 4; ++j) {
        const int u = j / 2, v = j % 2 * 2;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          uint32_t b0, b1;
          decode<F>(raw[c][i], j, s[c][i], b0, b1);
          mma_bf16(acc[i], xa[c][0][u][v], xa[c][1][u][v], xa[c][0][u][v + 1], xa[c][1][u][v + 1], b0, b1);
        }
      }
  }

  __shared__ float sums[kMaxSegments][16][8 * kTiles + 1];
  for (int i = 0; i < kTiles; ++i) {
    sums[warp][g][8 * i + 2 * t] = acc[i][0];
    sums[warp][g][8 * i + 2 * t + 1] = acc[i][1];
    sums[warp][g + 8][8 * i + 2 * t] = acc[i][2];
    sums[warp][g + 8][8 * i + 2 * t + 1] = acc[i][3];
  }
  __syncthreads();
  static_assert(16 * 8 * kTiles == 32 * kMaxSegments, "one output a thread");
  const int m = threadIdx.x / (8 * kTiles), local = threadIdx.x % (8 * kTiles);
  if (m >= p.rows || n0 + local >= p.group_n) return;
  float total = 0;
  for (int i = 0; i < p.segments; ++i) total += sums[i][m][local];
  store_output(p, m, int64_t{group} * p.group_n + n0 + local, total);
}

// ---- many rows: tiles of BM rows x 128 outputs through shared memory --------------------------------------------
template <WeightFormat F, int BM>
struct LinearTile {
  static constexpr int E = WeightTraits<F>::lane_values;
  static constexpr int kChunk = 4 * E;
  static constexpr int BN = 128;
  static constexpr int BK = kChunk > 64 ? kChunk : 64;
  static constexpr int kChunks = BK / kChunk;
  static constexpr int kStages = 4;
  static constexpr int kThreads = 256;
  static constexpr int kWarpsM = BM >= 64 ? 2 : 1, kWarpsN = 8 / kWarpsM;
  static constexpr int MT = BM / kWarpsM / 16, NT = BN / kWarpsN / 8;  // 16 x 8 tiles of a warp
  static constexpr int kUnitsX = BK / 8;                               // 16-byte units of a row of x
  static constexpr int kBytesX = BM * BK * 2, kBytesW = kChunks * BN * 64;
  static constexpr int kStageBytes = kBytesX + kBytesW;
  static constexpr int kScaleRows = F == WeightFormat::bf16 ? 0 : F == WeightFormat::mxfp4 ? BN : BN / 32 + 1;

  static size_t shared_bytes(int k) {
    return static_cast<size_t>(kStages) * kStageBytes + static_cast<size_t>(kScaleRows) * ((k + 31) / 32);
  }

  // Units of a row of x are permuted so that the eight lanes of a shared memory phase (two rows, four t) meet eight
  // different bank groups.
  static __device__ __forceinline__ int swizzle(int row, int unit) {
    if constexpr (F == WeightFormat::bf16) return unit ^ ((row & 1) << 2);
    if constexpr (F == WeightFormat::fp8_block32) return unit ^ (row & 1);
    return unit ^ (unit >> 3) ^ ((row & 1) << 1);
  }
};

template <WeightFormat F, int BM>
__global__ void __launch_bounds__(256, 1) linear_tile(const LinearProblem p) {
  using T = LinearTile<F, BM>;
  constexpr int E = T::E, MT = T::MT, NT = T::NT;
  extern __shared__ __align__(128) uint8_t shared[];
  uint8_t* const scales = shared + T::kStages * T::kStageBytes;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int wm = warp % T::kWarpsM * (MT * 16), wn = warp / T::kWarpsM * (NT * 8);
  const int m0 = blockIdx.x * BM;
  const int tiles = (p.group_n + T::BN - 1) / T::BN;
  const int group = blockIdx.y / tiles, n0 = blockIdx.y % tiles * T::BN;
  const int64_t n_base = int64_t{group} * p.group_n + n0;
  const int n_count = min(T::BN, p.group_n - n0);

  const int per_cta = (p.segments + p.split - 1) / p.split;
  const int segment_begin = blockIdx.z * per_cta, segment_end = min(p.segments, segment_begin + per_cta);
  if (segment_begin >= segment_end) return;
  const int k_begin = segment_begin * p.segment, k_end = min(p.k, segment_end * p.segment);
  const int steps = (k_end - k_begin + T::BK - 1) / T::BK;

  // What this thread copies in every stage.
  constexpr int kCopiesX = BM * T::kUnitsX / T::kThreads, kCopiesW = T::kBytesW / 16 / T::kThreads;
  const uint16_t* x_from[kCopiesX];
  bool x_valid[kCopiesX];
#pragma unroll
  for (int i = 0; i < kCopiesX; ++i) {
    const int row = m0 + (threadIdx.x + i * T::kThreads) / T::kUnitsX;
    x_valid[i] = row < p.rows;
    const int64_t source = x_valid[i] ? (p.x_row != nullptr ? p.x_row[row] : row) : 0;
    x_from[i] = p.x + source * p.x_stride + int64_t{group} * p.k;
  }
  const int64_t row_bytes = int64_t{16} * p.k / E;
  const auto load = [&](int step) {
    uint8_t* const stage = shared + step % T::kStages * T::kStageBytes;
    const int k0 = k_begin + step * T::BK;
#pragma unroll
    for (int i = 0; i < kCopiesX; ++i) {
      const int at = threadIdx.x + i * T::kThreads, row = at / T::kUnitsX, unit = at % T::kUnitsX;
      const int k = k0 + unit * 8;
      const bool valid = x_valid[i] && k < k_end;
      copy_async_16(stage + (row * T::kUnitsX + T::swizzle(row, unit)) * 16, valid ? x_from[i] + k : p.x, valid);
    }
#pragma unroll
    for (int i = 0; i < kCopiesW; ++i) {
      const int at = threadIdx.x + i * T::kThreads;
      const int chunk = at / (T::BN * 4), n = at / 4 % T::BN, unit = at % 4;
      const int k = k0 + chunk * T::kChunk + unit * E;
      const bool valid = n < n_count && k < k_end;
      copy_async_16(stage + T::kBytesX + at * 16, valid ? p.w + (n_base + n) * row_bytes + int64_t{16} * k / E : p.w,
                    valid);
    }
  };

  // All scales of the tile's part of W: a few KB.
  const int64_t scale_cols = (p.k + 31) / 32;
  const int first_block = k_begin / 32, blocks = (k_end + 31) / 32 - first_block;
  if constexpr (F != WeightFormat::bf16) {
    const int64_t first_row = scale_row<F>(n_base);
    const int count = static_cast<int>(scale_row<F>(n_base + n_count - 1) - first_row) + 1;
    for (int i = threadIdx.x; i < count * blocks; i += T::kThreads)
      scales[i] = p.scale[(first_row + i / blocks) * scale_cols + first_block + i % blocks];
  }
  int scale_at[NT];
#pragma unroll
  for (int j = 0; j < NT; ++j) {
    const int n = min(wn + 8 * j + g, n_count - 1);
    scale_at[j] = static_cast<int>(scale_row<F>(n_base + n) - scale_row<F>(n_base)) * blocks;
  }

  for (int i = 0; i < T::kStages - 1; ++i) {
    if (i < steps) load(i);
    copy_async_commit();
  }

  float acc[MT][NT][4] = {}, total[MT][NT][4] = {};
  int segment = segment_begin;
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<T::kStages - 2>();
    __syncthreads();
    if (step + T::kStages - 1 < steps) load(step + T::kStages - 1);
    copy_async_commit();

    const uint8_t* const stage = shared + step % T::kStages * T::kStageBytes;
    const int k0 = k_begin + step * T::BK;
#pragma unroll
    for (int chunk = 0; chunk < T::kChunks; ++chunk) {
      uint32_t raw[NT][4], s[NT];
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const uint4 v =
            *reinterpret_cast<const uint4*>(stage + T::kBytesX + ((chunk * T::BN + wn + 8 * j + g) * 4 + t) * 16);
        raw[j][0] = v.x, raw[j][1] = v.y, raw[j][2] = v.z, raw[j][3] = v.w;
        s[j] = 0;
        if constexpr (F != WeightFormat::bf16) {
          const int block = (k0 + chunk * T::kChunk + t * E) / 32 - first_block;
          s[j] = scale_pair(scales[scale_at[j] + min(block, blocks - 1)]);
        }
      }
#pragma unroll
      for (int u = 0; u < E / 8; ++u) {
        uint32_t xa[MT][2][4];
#pragma unroll
        for (int i = 0; i < MT; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int row = wm + 16 * i + 8 * h + g;
            const int unit = chunk * (T::kChunk / 8) + t * (E / 8) + u;
            const uint4 v = *reinterpret_cast<const uint4*>(stage + (row * T::kUnitsX + T::swizzle(row, unit)) * 16);
            xa[i][h][0] = v.x, xa[i][h][1] = v.y, xa[i][h][2] = v.z, xa[i][h][3] = v.w;
          }
#pragma unroll
        for (int v = 0; v < 2; ++v)
#pragma unroll
          for (int j = 0; j < NT; ++j) {
            uint32_t b0, b1;
            decode<F>(raw[j], 2 * u + v, s[j], b0, b1);
#pragma unroll
            for (int i = 0; i < MT; ++i)
              mma_bf16(acc[i][j], xa[i][0][2 * v], xa[i][1][2 * v], xa[i][0][2 * v + 1], xa[i][1][2 * v + 1], b0, b1);
          }
      }
    }

    if (k0 + T::BK < min(p.k, (segment + 1) * p.segment)) continue;
    // The end of a segment.
    const int64_t n_total = int64_t{p.groups} * p.group_n;
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (p.partial != nullptr) {
            const int row = m0 + wm + 16 * i + g + e / 2 * 8, n = wn + 8 * j + 2 * t + e % 2;
            if (row < p.rows && n < n_count)
              p.partial[(int64_t{segment} * p.rows + row) * n_total + n_base + n] = acc[i][j][e];
          }
          total[i][j][e] += acc[i][j][e];
          acc[i][j][e] = 0;
        }
    ++segment;
  }
  if (p.partial != nullptr) return;
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = m0 + wm + 16 * i + g + 8 * h, n = wn + 8 * j + 2 * t;
        if (row >= p.rows) continue;
        const float a = total[i][j][2 * h], b = total[i][j][2 * h + 1];
        // Both at once where the address allows: y_stride and n_base even.
        if (p.y != nullptr && n + 1 < n_count && ((p.y_stride | n_base) & 1) == 0) {
          *reinterpret_cast<uint32_t*>(p.y + int64_t{row} * p.y_stride + n_base + n) = pack_bf16x2(a, b);
        } else {
          if (n < n_count) store_output(p, row, n_base + n, a);
          if (n + 1 < n_count) store_output(p, row, n_base + n + 1, b);
        }
      }
}

}  // namespace hadal::cuda
