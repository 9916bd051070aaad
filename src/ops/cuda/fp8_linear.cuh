// Kernels of fp8_linear.h.
//
// Wide (prefill): rows of x are the M side of the matrix instruction and weights the N side, so that a thread needs two row
// scales for each of its 64-row blocks and one weight scale for 32 columns: adding a partial sum costs one fused
// multiply-add. Two or three warpgroups take their partial sums in turn, and while one adds, another multiplies.
// Narrow (decode): weights are the M side, so that no product is wasted on rows that are not there. The tensor core gives
// the same bits for exchanged operands.
// Both read operands as they lie in memory, by bulk copies into a ring of stages of 128 of k.
#pragma once

#include <algorithm>

#include "ops/cuda/errors.h"
#include "ops/cuda/fp8_linear.h"
#include "ops/cuda/fp8_rows.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/wgmma.cuh"

namespace hadal::cuda {

inline constexpr int kFewRows = 8;                    // fp8_few.cu
inline constexpr int kMostFewColumns = 8 * 20 * 128;  // of which a CTA of eight has 20 groups of 128 in shared memory

// d = A[64, 128] B[128, N], both from stages in shared memory.
template <int N>
__device__ __forceinline__ void multiply_group(float* d, uint64_t a, uint64_t b) {
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < 4; ++j) Wgmma<N>::ss_e4m3(d, a + 2 * j, b + 2 * j, j > 0);
  wgmma_commit();
}

// Where weights come from and results go.
struct Fp8Side {
  const uint8_t* weights;
  const float* scales;
  uint16_t* y;
};
__device__ __forceinline__ Fp8Side fp8_side(const Fp8Problem& p, bool second) {
  return second ? Fp8Side{p.second_weights, p.second_scales, p.second_y} : Fp8Side{p.weights, p.weight_scales, p.y};
}
// Outputs of one weight, or of both.
__host__ __device__ __forceinline__ int fp8_sides(const Fp8Problem& p) { return p.second_weights != nullptr ? 2 : 1; }

// ---- wide ------------------------------------------------------------------------------------------------------
template <int Blocks, int N, int Stages, bool Quantise, int Groups = 2>
struct Fp8Wide {
  static constexpr int kGroups = Groups;  // warpgroups that multiply
  static constexpr int kBlocks = Blocks, kN = N, kStages = Stages;
  static constexpr bool kQuantise = Quantise;         // results as Q4 instead of bf16: N = 128
  static constexpr int kRows = 64 * Groups * Blocks;  // a warpgroup has Blocks blocks of 64
  static constexpr int kThreads = 128 * (Groups + 1);
  static constexpr int kRegisters = Groups == 2 ? 240 : 160;
  // Scales of the piece's blocks of 32 outputs, from a 16-byte boundary on.
  static constexpr int kScales = N % 128 == 0 ? N / 32 : (N / 32 + 6) / 4 * 4;
  static constexpr int kScaleVector = N % 128 == 0 ? 4 : N % 64 == 0 ? 2 : 1;  // how they are aligned in shared memory
  static constexpr int kResultRow = N + 16;  // bytes of half a row of bf16, padded against bank conflicts
};

template <class S>
struct Fp8WideShared {
  uint8_t rows[S::kStages][S::kRows * 128];
  uint8_t weights[S::kStages][S::kN * 128];
  uint8_t results[4 * S::kGroups][16 * S::kResultRow];  // of a warp
  float row_scales[S::kStages][S::kRows];
  float weight_scales[S::kStages][S::kScales];
  uint64_t full[S::kStages], empty[S::kStages];
};

struct Fp8Piece {
  int row0, n0, input;  // input: the first group of 128 of x
  bool second;          // of the second weight
};
// Pieces that run at the same time share weights and go through all rows.
template <class S>
struct Fp8Pieces {
  int row_tiles, group_tiles, groups, count;
  __host__ __device__ __forceinline__ explicit Fp8Pieces(const Fp8Problem& p)
      : row_tiles((p.x.rows + S::kRows - 1) / S::kRows),
        group_tiles((p.group_n + S::kN - 1) / S::kN),
        groups(p.n / p.group_n),
        count(row_tiles * group_tiles * groups * fp8_sides(p)) {}
  __device__ __forceinline__ Fp8Piece operator()(const Fp8Problem& p, int number) const {
    const int tile = number / row_tiles, at = tile / group_tiles;
    const bool second = at >= groups;
    const int group = second ? at - groups : at;
    return {number % row_tiles * S::kRows, group * p.group_n + tile % group_tiles * S::kN, group * (p.k / 128), second};
  }
};

template <class S>
__device__ __forceinline__ void fp8_supply(Fp8WideShared<S>& s, const Fp8Problem& p) {
  const int k_groups = p.k / 128;
  RingPosition<S::kStages> ring;
  const Fp8Pieces<S> pieces(p);
  for (int number = blockIdx.x; number < pieces.count; number += gridDim.x) {
    const Fp8Piece piece = pieces(p, number);
    // What lies behind the last row or output stays as it is in shared memory: its products are not stored.
    const uint32_t row_bytes = min(S::kRows, p.x.padded - piece.row0) * 128, n_bytes = min(S::kN, p.n - piece.n0) * 128;
    const uint8_t* rows = p.x.codes + (static_cast<int64_t>(piece.input) * p.x.padded + piece.row0) * 128;
    const Fp8Side side = fp8_side(p, piece.second);
    const uint8_t* weights = side.weights + static_cast<int64_t>(piece.n0) * 128;
    const float* row_scales = p.x.scales + static_cast<int64_t>(piece.input) * p.x.padded + piece.row0;
    const float* weight_scales = side.scales + piece.n0 / 32 / 4 * 4;
    for (int k = 0; k < k_groups; ++k) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &s.full[ring.stage];
      mbarrier_arrive_expect(full, row_bytes + row_bytes / 32 + n_bytes + sizeof(s.weight_scales[0]));
      bulk_copy(s.rows[ring.stage], rows, row_bytes, full);
      bulk_copy(s.row_scales[ring.stage], row_scales, row_bytes / 32, full);
      bulk_copy(s.weights[ring.stage], weights, n_bytes, full);
      bulk_copy(s.weight_scales[ring.stage], weight_scales, sizeof(s.weight_scales[0]), full);
      row_scales += p.x.padded;
      weight_scales += p.n / 32;
      rows += static_cast<int64_t>(p.x.padded) * 128;
      weights += static_cast<int64_t>(p.n) * 128;
      ring.advance();
    }
  }
}

// A warp's 16 rows of sums to y through shared memory, half of the columns at a time, so that rows are written in runs.
template <class S>
__device__ __forceinline__ void write_rows(const Fp8Problem& p, uint16_t* y, int n0, int row0, uint8_t* results,
                                           int lane, const float* sum) {
  constexpr int kChunks = S::kN / 16;  // of 16 bytes in half a row
  const uint32_t address = smem_address(results) + (lane & 15) * S::kResultRow + (lane >> 4) * 16;
  const int columns = p.group_n - n0 % p.group_n, rows = p.x.rows - row0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __syncwarp();  // the results before have left
#pragma unroll
    for (int j = 0; j < S::kN / 32; ++j) {
      const float* v = sum + half * (S::kN / 4) + 8 * j;
      store_matrix4(address + j * 32, pack_bf16x2(v[0], v[1]), pack_bf16x2(v[2], v[3]), pack_bf16x2(v[4], v[5]),
                    pack_bf16x2(v[6], v[7]));
    }
    __syncwarp();
    uint16_t* out = y + static_cast<int64_t>(row0) * p.y_stride + n0 + half * (S::kN / 2);
#pragma unroll
    for (int i = lane; i < 16 * kChunks; i += 32) {
      const int row = i / kChunks, chunk = i % kChunks;
      if (row < rows && half * (S::kN / 2) + chunk * 8 < columns)
        *reinterpret_cast<uint4*>(out + row * p.y_stride + chunk * 8) =
            *reinterpret_cast<const uint4*>(results + row * S::kResultRow + chunk * 16);
    }
  }
}

// The same as Q4 of the bf16 results: the 128 columns are one group.
template <class S>
__device__ __forceinline__ void write_codes(const Fp8Problem& p, int n0, int row0, uint8_t* results, int lane,
                                            const float* sum) {
  static_assert(S::kN == 128);
  const int pair = lane & 3, row = lane >> 2;
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j)
      largest = fmaxf(largest, fmaxf(fabsf(sum[4 * j + 2 * half]), fabsf(sum[4 * j + 2 * half + 1])));
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 2));
    const float scale = from_ue8m0(q1_scale(round_to_bf16(largest))), inverse = reciprocal_of_power(scale);
    uint8_t* out = results + (row + 8 * half) * S::kResultRow + pair * 2;
#pragma unroll
    for (int j = 0; j < 16; ++j)
      *reinterpret_cast<uint16_t*>(out + j * 8) = static_cast<uint16_t>(e4m3_pair(
          round_to_bf16(sum[4 * j + 2 * half]) * inverse, round_to_bf16(sum[4 * j + 2 * half + 1]) * inverse));
    if (pair == 0 && row0 + row + 8 * half < p.quantised.padded)
      p.quantised.scales[static_cast<int64_t>(n0 / 128) * p.quantised.padded + row0 + row + 8 * half] = scale;
  }
  __syncwarp();
#pragma unroll
  for (int i = lane / 8; i < 16; i += 4)
    if (row0 + i < p.quantised.padded)
      *reinterpret_cast<uint4*>(fp8_chunk(p.quantised, n0 / 128, row0 + i, lane % 8)) =
          *reinterpret_cast<const uint4*>(results + i * S::kResultRow + lane % 8 * 16);
}

// Scales of the piece's blocks of 32 outputs, in as few loads as their alignment allows.
template <class S>
__device__ __forceinline__ void load_weight_scales(float* scales, const float* from) {
#pragma unroll
  for (int j = 0; j < S::kN / 32; j += S::kScaleVector) {
    if constexpr (S::kScaleVector == 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + j);
      scales[j] = v.x, scales[j + 1] = v.y, scales[j + 2] = v.z, scales[j + 3] = v.w;
    } else if constexpr (S::kScaleVector == 2) {
      const float2 v = *reinterpret_cast<const float2*>(from + j);
      scales[j] = v.x, scales[j + 1] = v.y;
    } else {
      scales[j] = from[j];
    }
  }
}

// Adds the products of one group of 128 of k, as the scales of the thread's two rows and of each block of 32 outputs have
// them.
template <class S>
__device__ __forceinline__ void add_part(float* sum, const float* part, float row_low, float row_high,
                                         const float* weight_scales) {
#pragma unroll
  for (int j = 0; j < S::kN / 32; ++j) {
    const float low = row_low * weight_scales[j], high = row_high * weight_scales[j];
#pragma unroll
    for (int i = 16 * j; i < 16 * j + 16; i += 4) {
      sum[i] = fmaf(part[i], low, sum[i]);
      sum[i + 1] = fmaf(part[i + 1], low, sum[i + 1]);
      sum[i + 2] = fmaf(part[i + 2], high, sum[i + 2]);
      sum[i + 3] = fmaf(part[i + 3], high, sum[i + 3]);
    }
  }
}

template <class S>
__device__ __forceinline__ void fp8_consume(Fp8WideShared<S>& s, const Fp8Problem& p, int group, int thread) {
  const int lane = thread & 31, k_groups = p.k / 128;
  const int first_row = group * 64 * S::kBlocks, scale_row = first_row + (thread >> 5) * 16 + (lane >> 2);
  RingPosition<S::kStages> ring;
  const Fp8Pieces<S> pieces(p);
  for (int number = blockIdx.x; number < pieces.count; number += gridDim.x) {
    const Fp8Piece piece = pieces(p, number);
    const int scale_n = S::kN % 128 == 0 ? 0 : piece.n0 / 32 % 4;
    float sum[S::kBlocks][S::kN / 2];
#pragma unroll
    for (int b = 0; b < S::kBlocks; ++b)
#pragma unroll
      for (int i = 0; i < S::kN / 2; ++i) sum[b][i] = 0;
    for (int k = 0; k < k_groups; ++k) {
      mbarrier_wait(&s.full[ring.stage], ring.parity);
      const uint64_t weights = k_major_descriptor(smem_address(s.weights[ring.stage]));
      float weight_scales[S::kN / 32], row_low[S::kBlocks], row_high[S::kBlocks];
#pragma unroll
      for (int b = 0; b < S::kBlocks; ++b) {
        float part[S::kN / 2];
        multiply_group<S::kN>(part, k_major_descriptor(smem_address(s.rows[ring.stage] + (first_row + 64 * b) * 128)),
                              weights);
        wgmma_wait<0>();
        if (b == 0) {  // behind the wait: loads beside the products take the shared memory that they read
          load_weight_scales<S>(weight_scales, s.weight_scales[ring.stage] + scale_n);
#pragma unroll
          for (int c = 0; c < S::kBlocks; ++c) {
            row_low[c] = s.row_scales[ring.stage][scale_row + 64 * c];
            row_high[c] = s.row_scales[ring.stage][scale_row + 64 * c + 8];
          }
        }
        add_part<S>(sum[b], part, row_low[b], row_high[b], weight_scales);
      }
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.empty[ring.stage]);
      ring.advance();
    }
#pragma unroll
    for (int b = 0; b < S::kBlocks; ++b) {
      const int row0 = piece.row0 + first_row + 64 * b + (thread >> 5) * 16;
      uint8_t* results = s.results[group * 4 + (thread >> 5)];
      if constexpr (S::kQuantise)
        write_codes<S>(p, piece.n0, row0, results, lane, sum[b]);
      else
        write_rows<S>(p, fp8_side(p, piece.second).y, piece.n0, row0, results, lane, sum[b]);
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) fp8_wide_kernel(const __grid_constant__ Fp8Problem p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<Fp8WideShared<S>*>(shared_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], 4 * S::kGroups);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  // The same in all lanes, as the compiler must know to keep descriptors in uniform registers.
  const int group = __shfl_sync(kFullWarp, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
  if (group == S::kGroups) {
    registers_give<24>();
    if (thread == 0) fp8_supply<S>(s, p);
  } else {
    registers_take<S::kRegisters>();
    fp8_consume<S>(s, p, group, thread);
  }
}

template <class S>
void launch_fp8_wide(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Fp8WideShared<S>);
  static_assert(kBytes <= 227 * 1024);
  launch("fp8_wide", fp8_wide_kernel<S>,
         {.grid = dim3(std::min(Fp8Pieces<S>(p).count, multiprocessors)),
          .block = dim3(S::kThreads),
          .shared = kBytes,
          .stream = stream,
          .early = true},
         p);
}

// ---- narrow ----------------------------------------------------------------------------------------------------
template <int N, int Stages, int Resident>
struct Fp8Narrow {
  static constexpr int kN = N, kStages = Stages, kResident = Resident;  // N rows of x; CTAs of a multiprocessor
  static constexpr int kThreads = 256;                                  // four warps multiply, four bring a copy each
};

template <class S>
struct Fp8NarrowShared {
  uint8_t weights[S::kStages][64 * 128];
  uint8_t rows[S::kStages][S::kN * 128];
  uint8_t results[S::kN * 128];  // [row][64 outputs], swizzled
  float row_scales[S::kStages][S::kN];
  float weight_scales[S::kStages][4];  // of this block and its neighbour
  uint64_t full[S::kStages], empty[S::kStages];
};

// 64 outputs of up to N rows; pieces that run at the same time share weights.
template <class S>
struct Fp8NarrowPieces {
  int row_tiles, blocks, count;
  __host__ __device__ __forceinline__ explicit Fp8NarrowPieces(const Fp8Problem& p)
      : row_tiles((p.x.rows + S::kN - 1) / S::kN), blocks(p.n / 64), count(blocks * row_tiles * fp8_sides(p)) {}
  __device__ __forceinline__ bool second(int number) const { return number >= blocks * row_tiles; }
  __device__ __forceinline__ int block(int number) const { return number / row_tiles - (second(number) ? blocks : 0); }
  __device__ __forceinline__ int row0(int number) const { return number % row_tiles * S::kN; }
};

// A stage has four copies, each with a warp of its own: one thread needs longer to ask for them all than the products take.
enum class Fp8Copy { weights, weight_scales, rows, row_scales };

template <class S, Fp8Copy Copy>
__device__ __forceinline__ void fp8_supply(Fp8NarrowShared<S>& s, const Fp8Problem& p) {
  constexpr bool kWeights = Copy == Fp8Copy::weights || Copy == Fp8Copy::weight_scales;
  const int k_groups = p.k / 128;
  const Fp8NarrowPieces<S> pieces(p);
  RingPosition<S::kStages> ring;
  if constexpr (!kWeights) wait_for_previous();  // weights come before
  for (int number = blockIdx.x; number < pieces.count; number += gridDim.x) {
    const int block = pieces.block(number), row0 = pieces.row0(number);
    const Fp8Side side = fp8_side(p, pieces.second(number));
    const int rows = min(S::kN, (p.x.rows - row0 + 7) / 8 * 8);
    const int64_t input = static_cast<int64_t>(block * 64 / p.group_n) * k_groups;
    for (int k = 0; k < k_groups; ++k) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      const auto copy = [&](void* to, const void* from, uint32_t bytes) {
        mbarrier_arrive_expect(&s.full[ring.stage], bytes);
        bulk_copy(to, from, bytes, &s.full[ring.stage]);
      };
      if constexpr (Copy == Fp8Copy::weights)
        copy(s.weights[ring.stage], side.weights + (static_cast<int64_t>(k) * p.n + block * 64) * 128, 64 * 128);
      else if constexpr (Copy == Fp8Copy::weight_scales)
        copy(s.weight_scales[ring.stage], side.scales + block / 2 * 4 + k * (p.n / 32), 4 * sizeof(float));
      else if constexpr (Copy == Fp8Copy::rows)
        copy(s.rows[ring.stage], p.x.codes + ((input + k) * p.x.padded + row0) * 128, rows * 128);
      else
        copy(s.row_scales[ring.stage], p.x.scales + (input + k) * p.x.padded + row0, rows * sizeof(float));
      ring.advance();
    }
  }
}

template <class S>
__device__ __forceinline__ void fp8_consume(Fp8NarrowShared<S>& s, const Fp8Problem& p, int thread) {
  const int warp = thread >> 5, lane = thread & 31, pair = lane & 3, k_groups = p.k / 128;
  const Fp8NarrowPieces<S> pieces(p);
  RingPosition<S::kStages> ring;
  for (int number = blockIdx.x; number < pieces.count; number += gridDim.x) {
    const int block = pieces.block(number), row0 = pieces.row0(number), weight_block = block % 2 * 2 + warp / 2;
    float sum[S::kN / 2], part[2][S::kN / 2];
#pragma unroll
    for (int i = 0; i < S::kN / 2; ++i) sum[i] = 0;
    // One group's products run while those of the group before are added.
    int before = 0, left = k_groups;
    const auto add = [&](const float* d) __attribute__((always_inline)) {
      const float weight_scale = s.weight_scales[before][weight_block];
#pragma unroll
      for (int j = 0; j < S::kN / 8; ++j) {
        const float2 row = *reinterpret_cast<const float2*>(&s.row_scales[before][8 * j + 2 * pair]);
        const float first = row.x * weight_scale, second = row.y * weight_scale;
        sum[4 * j] = fmaf(d[4 * j], first, sum[4 * j]);
        sum[4 * j + 1] = fmaf(d[4 * j + 1], second, sum[4 * j + 1]);
        sum[4 * j + 2] = fmaf(d[4 * j + 2], first, sum[4 * j + 2]);
        sum[4 * j + 3] = fmaf(d[4 * j + 3], second, sum[4 * j + 3]);
      }
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.empty[before]);
    };
    const auto step = [&](float* now, const float* last, bool first) __attribute__((always_inline)) {
      mbarrier_wait(&s.full[ring.stage], ring.parity);
      multiply_group<S::kN>(now, k_major_descriptor(smem_address(s.weights[ring.stage])),
                            k_major_descriptor(smem_address(s.rows[ring.stage])));
      if (!first) {
        wgmma_wait<1>();
        add(last);
      }
      before = ring.stage;
      ring.advance();
      --left;
    };
    step(part[0], nullptr, true);
    while (left >= 2) {
      step(part[1], part[0], false);
      step(part[0], part[1], false);
    }
    if (left == 1) {
      step(part[1], part[0], false);
      wgmma_wait<0>();
      add(part[1]);
    } else {
      wgmma_wait<0>();
      add(part[0]);
    }

    // [row][output] by transposing on the way to shared memory.
    const uint32_t address =
        smem_address(s.results) + (lane & 7) * 128 + (((2 * warp + ((lane >> 3) & 1)) ^ (lane & 7)) << 4);
    named_barrier(1, 128);
#pragma unroll
    for (int j = 0; j < S::kN / 8; ++j)
      store_matrix2_transposed(address + j * 1024, pack_bf16x2(sum[4 * j], sum[4 * j + 1]),
                               pack_bf16x2(sum[4 * j + 2], sum[4 * j + 3]));
    named_barrier(1, 128);
    const int chunk = thread & 7, rows = min(S::kN, p.x.rows - row0);
    uint16_t* out = fp8_side(p, pieces.second(number)).y + row0 * p.y_stride + block * 64 + chunk * 8;
#pragma unroll 4
    for (int i = thread >> 3; i < rows; i += 16)
      *reinterpret_cast<uint4*>(out + i * p.y_stride) =
          *reinterpret_cast<const uint4*>(s.results + i * 128 + ((chunk ^ (i & 7)) << 4));
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kResident) fp8_narrow_kernel(const __grid_constant__ Fp8Problem p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<Fp8NarrowShared<S>*>(shared_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(&s.full[i], 4);
      mbarrier_init(&s.empty[i], 4);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  let_next_start();
  // What is written depends on the rows, and they are supplied after the wait.
  if (threadIdx.x < 128)
    fp8_consume<S>(s, p, threadIdx.x);
  else if (threadIdx.x == 128)
    fp8_supply<S, Fp8Copy::weights>(s, p);
  else if (threadIdx.x == 160)
    fp8_supply<S, Fp8Copy::weight_scales>(s, p);
  else if (threadIdx.x == 192)
    fp8_supply<S, Fp8Copy::rows>(s, p);
  else if (threadIdx.x == 224)
    fp8_supply<S, Fp8Copy::row_scales>(s, p);
}

template <class S>
void launch_fp8_narrow(const Fp8Problem& p, int multiprocessors, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Fp8NarrowShared<S>);
  static_assert(S::kResident * (kBytes + 1024) <= 228 * 1024);
  launch("fp8_narrow", fp8_narrow_kernel<S>,
         {.grid = dim3(std::min(Fp8NarrowPieces<S>(p).count, multiprocessors * S::kResident)),
          .block = dim3(S::kThreads),
          .shared = kBytes,
          .stream = stream,
          .early = true},
         p);
}

}  // namespace hadal::cuda
