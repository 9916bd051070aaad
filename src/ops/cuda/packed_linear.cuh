// y = W x on wgmma: weights are the M side, decoded from FP8 in registers, rows of x the N side, in shared memory.
//
// A packed tile is 64 rows x 64 columns: 4,096 bytes of codes, thread t of a warpgroup finding all its operand values in
// two 16-byte loads, then 128 bytes of scales. Tiles of one 64-row block follow each other in k, so a block streams
// contiguously. Decoding is exact: a code is moved to the low end of a bf16's exponent and the top of its mantissa, which
// reads as the value times 2^-120, and one multiplication puts exponent and scale right. A row's largest scale is taken out
// and applied to the fp32 sum, so that every scale byte works.
//
// A row's sums run over k in one chain of 16-wide steps, whatever the width N of the tile: the same bits for any number of
// rows. Wide kernels (prefill): two warpgroups of two blocks each, so that one block's weights are decoded while the
// other's products run. Narrow kernels (decode): one block a CTA, as many CTAs as there are blocks; a multiprocessor each
// where there are enough, for the chain's latency counts, and several on one otherwise.
#pragma once

#include <algorithm>

#include "ops/cuda/boxes.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/packed_linear.h"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma.cuh"

namespace hadal::cuda {

inline constexpr int kPackedCodes = 4096;
inline constexpr int kPackedTile = kPackedCodes + 128;
inline constexpr int kPackedExponent = 247;  // bf16 exponent field of 2^120

struct PackedRaw {
  uint4 codes[2];
  uint32_t scales;
};

__device__ __forceinline__ PackedRaw load_packed(const uint8_t* tile, int thread) {
  PackedRaw raw;
  raw.codes[0] = *reinterpret_cast<const uint4*>(tile + thread * 16);
  raw.codes[1] = *reinterpret_cast<const uint4*>(tile + 2048 + thread * 16);
  raw.scales = *reinterpret_cast<const uint32_t*>(tile + kPackedCodes + (thread >> 2) * 4);
  return raw;
}

// A 16-bit half holds a value of row g (sign 15, code 10..4) and one of row g + 8 (sign 11, code 14..12 and 3..0).
__device__ __forceinline__ void decode_word(uint32_t w, uint32_t scale_low, uint32_t scale_high, uint32_t* a) {
  a[0] = multiply_bf16x2(w & 0x87f087f0u, scale_low);
  a[1] = multiply_bf16x2(((w << 4) & 0x80f080f0u) | ((w >> 4) & 0x07000700u), scale_high);
}

// The A operands of the four steps of 16.
__device__ __forceinline__ void decode_packed(const PackedRaw& raw, uint32_t (&a)[16]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t low = __byte_perm(raw.scales, 0, half != 0 ? 0x4242 : 0x4040) << 7;
    const uint32_t high = __byte_perm(raw.scales, 0, half != 0 ? 0x4343 : 0x4141) << 7;
    decode_word(raw.codes[half].x, low, high, a + 8 * half);
    decode_word(raw.codes[half].y, low, high, a + 8 * half + 2);
    decode_word(raw.codes[half].z, low, high, a + 8 * half + 4);
    decode_word(raw.codes[half].w, low, high, a + 8 * half + 6);
  }
}

// Boxes: rows of x are neighbours, and the copy engine brings them; otherwise 96 threads gather them.
template <int N, int Groups, int Blocks, int Stages, bool Boxes = false>
struct PackedShape {
  static constexpr bool kBoxes = Boxes;
  static constexpr int kN = N, kGroups = Groups, kBlocks = Blocks, kStages = Stages;
  // A CTA has one piece, and not one after the other: fewer registers do, so that there are two on a multiprocessor.
  static constexpr bool kOnce = Groups == 1 && N > 64;
  static constexpr int kBand = 64 * Groups * Blocks;  // outputs of a piece
  static constexpr int kThreads = 128 * (Groups + 1);
  static constexpr int kGatherThreads = 96;
  static constexpr int kTokenBytes = N * 128;
};

template <class S>
struct PackedShared {
  uint8_t tokens[S::kStages][S::kTokenBytes];   // 128-byte swizzle
  uint8_t results[S::kGroups][S::kTokenBytes];  // [row][64 outputs], swizzled, on the way out
  uint8_t weights[S::kStages][S::kGroups * S::kBlocks * kPackedTile];
  uint64_t full[S::kStages], empty[S::kStages];
};

struct PackedPiece {
  int band, row0, rows;
};
template <class S>
__device__ __forceinline__ PackedPiece packed_piece(const PackedProblem& p, int number) {
  const int tiles = (p.rows + S::kN - 1) / S::kN;
  const int row0 = number % tiles * S::kN;
  return {number / tiles, row0, min(S::kN, p.rows - row0)};
}
template <class S>
__device__ __forceinline__ int packed_pieces(const PackedProblem& p) {
  return p.n / S::kBand * ((p.rows + S::kN - 1) / S::kN);
}

// One block's sums to y, through shared memory so that rows are written 128 bytes at a time.
template <class S>
__device__ __forceinline__ void write_block(const PackedProblem& p, const PackedPiece& piece, uint8_t* results,
                                            int barrier, int thread, int block, const float (&sum)[S::kN / 2],
                                            float low, float high) {
  const int warp = thread >> 5, lane = thread & 31;
  const uint32_t address =
      smem_address(results) + (lane & 7) * 128 + (((2 * warp + ((lane >> 3) & 1)) ^ (lane & 7)) << 4);
  named_barrier(barrier, 128);  // the results before have left
#pragma unroll
  for (int j = 0; j < S::kN / 8; ++j)
    store_matrix2_transposed(address + j * 1024, pack_bf16x2(sum[4 * j] * low, sum[4 * j + 1] * low),
                             pack_bf16x2(sum[4 * j + 2] * high, sum[4 * j + 3] * high));
  named_barrier(barrier, 128);
  const int chunk = thread & 7;
  uint16_t* out = p.y + static_cast<int64_t>(piece.row0) * p.y_stride + block * 64 + chunk * 8;
#pragma unroll 4
  for (int i = thread >> 3; i < piece.rows; i += 16)
    *reinterpret_cast<uint4*>(out + i * p.y_stride) =
        *reinterpret_cast<const uint4*>(results + i * 128 + ((chunk ^ (i & 7)) << 4));
}

template <class S>
__device__ __forceinline__ void packed_consume(PackedShared<S>& s, const PackedProblem& p, int group, int thread) {
  const int lane = thread & 31, k_tiles = p.k / 64;
  RingPosition<S::kStages> ring;
  for (int number = blockIdx.x; number < packed_pieces<S>(p); number += gridDim.x) {
    const PackedPiece piece = packed_piece<S>(p, number);
    const int block = piece.band * (S::kGroups * S::kBlocks) + group * S::kBlocks;
    const float* scale = p.row_scale + block * 64 + (thread >> 5) * 16 + (lane >> 2);
    if constexpr (S::kBlocks == 2) {
      float sum0[S::kN / 2], sum1[S::kN / 2];
#pragma unroll
      for (int i = 0; i < S::kN / 2; ++i) sum0[i] = sum1[i] = 0;
      uint32_t a0[16], a1[16];
      mbarrier_wait(&s.full[ring.stage], ring.parity);
      PackedRaw raw0 = load_packed(s.weights[ring.stage] + 2 * group * kPackedTile, thread);
      PackedRaw raw1 = load_packed(s.weights[ring.stage] + (2 * group + 1) * kPackedTile, thread);
      decode_packed(raw0, a0);
      int k = k_tiles;
      do {
        const uint64_t tokens = k_major_descriptor(smem_address(s.tokens[ring.stage]));
        uint64_t* empty = &s.empty[ring.stage];
        // Gathered rows came by cp.async; the matrix unit reads them through the other proxy.
        if constexpr (!S::kBoxes) fence_async_shared();
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) Wgmma<S::kN>::rs(sum0, a0 + 4 * j, tokens + 2 * j, 1);
        wgmma_commit();
        decode_packed(raw1, a1);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) Wgmma<S::kN>::rs(sum1, a1 + 4 * j, tokens + 2 * j, 1);
        wgmma_commit();
        wgmma_wait<1>();
        ring.advance();
        if (--k > 0) {
          mbarrier_wait(&s.full[ring.stage], ring.parity);
          raw0 = load_packed(s.weights[ring.stage] + 2 * group * kPackedTile, thread);
          raw1 = load_packed(s.weights[ring.stage] + (2 * group + 1) * kPackedTile, thread);
          decode_packed(raw0, a0);
        }
        wgmma_wait<0>();
        __syncwarp();  // all lanes have read their weights
        if (lane == 0) mbarrier_arrive(empty);
      } while (k > 0);
      write_block<S>(p, piece, s.results[group], 1 + group, thread, block, sum0, scale[0], scale[8]);
      write_block<S>(p, piece, s.results[group], 1 + group, thread, block + 1, sum1, scale[64], scale[72]);
    } else {
      float sum[S::kN / 2];
#pragma unroll
      for (int i = 0; i < S::kN / 2; ++i) sum[i] = 0;
      uint32_t a[2][16];
      uint64_t* previous = nullptr;
      mbarrier_wait(&s.full[ring.stage], ring.parity);
      PackedRaw raw = load_packed(s.weights[ring.stage] + group * kPackedTile, thread);
      int left = k_tiles;
      const auto step = [&](uint32_t(&operand)[16]) __attribute__((always_inline)) {
        decode_packed(raw, operand);
        const uint64_t tokens = k_major_descriptor(smem_address(s.tokens[ring.stage]));
        if constexpr (!S::kBoxes) fence_async_shared();
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) Wgmma<S::kN>::rs(sum, operand + 4 * j, tokens + 2 * j, 1);
        wgmma_commit();
        uint64_t* empty = &s.empty[ring.stage];
        ring.advance();
        if (--left > 0) {  // the next step's weights arrive in registers while the products run
          mbarrier_wait(&s.full[ring.stage], ring.parity);
          raw = load_packed(s.weights[ring.stage] + group * kPackedTile, thread);
        }
        wgmma_wait<1>();  // the step before is done: its operands and its stage are free
        __syncwarp();
        if (lane == 0 && previous != nullptr) mbarrier_arrive(previous);
        previous = empty;
      };
      int k = 0;
      for (; k + 1 < k_tiles; k += 2) {
        step(a[0]);
        step(a[1]);
      }
      if (k < k_tiles) step(a[0]);
      wgmma_wait<0>();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(previous);
      write_block<S>(p, piece, s.results[group], 1 + group, thread, block, sum, scale[0], scale[8]);
    }
    if constexpr (S::kOnce) break;
  }
}

// One thread streams weights.
template <class S>
__device__ __forceinline__ void packed_supply_weights(PackedShared<S>& s, const PackedProblem& p) {
  constexpr int kTiles = S::kGroups * S::kBlocks;
  const int k_tiles = p.k / 64;
  RingPosition<S::kStages> ring;
  for (int number = blockIdx.x; number < packed_pieces<S>(p); number += gridDim.x) {
    const int band = packed_piece<S>(p, number).band;
    const uint8_t* from = p.tiles + static_cast<int64_t>(band) * kTiles * k_tiles * kPackedTile;
    for (int k = 0; k < k_tiles; ++k, from += kPackedTile) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &s.full[ring.stage];
      mbarrier_arrive_expect(full, kTiles * kPackedTile);
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
        bulk_copy(s.weights[ring.stage] + i * kPackedTile, from + static_cast<int64_t>(i) * k_tiles * kPackedTile,
                  kPackedTile, full);
      ring.advance();
    }
    if constexpr (S::kOnce) break;
  }
}

template <class S>
__device__ __forceinline__ void packed_supply_boxes(PackedShared<S>& s, const PackedProblem& p, const CUtensorMap& x) {
  const int k_tiles = p.k / 64;
  RingPosition<S::kStages> ring;
  for (int number = blockIdx.x; number < packed_pieces<S>(p); number += gridDim.x) {
    const PackedPiece piece = packed_piece<S>(p, number);
    const int column = piece.band * S::kBand / p.group_n * p.k;
    for (int k = 0; k < k_tiles; ++k) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &s.full[ring.stage];
      mbarrier_arrive_expect(full, S::kTokenBytes);
      box_copy(s.tokens[ring.stage], &x, column + 64 * k, piece.row0, full);
      ring.advance();
    }
    if constexpr (S::kOnce) break;
  }
}

// 96 threads gather rows: eight lanes a row of 128 bytes, twelve rows at a time. Rows past the end stay as they are in
// shared memory: columns of a product do not mix, and theirs are not stored.
template <class S>
__device__ __forceinline__ void packed_supply_rows(PackedShared<S>& s, const PackedProblem& p, int thread) {
  constexpr int kPasses = (S::kN + 11) / 12;
  const int chunk = thread & 7, first = thread >> 3, k_tiles = p.k / 64;
  RingPosition<S::kStages> ring;
  for (int number = blockIdx.x; number < packed_pieces<S>(p); number += gridDim.x) {
    const PackedPiece piece = packed_piece<S>(p, number);
    const int64_t column = static_cast<int64_t>(piece.band * S::kBand / p.group_n) * p.k;
    const uint4* from = reinterpret_cast<const uint4*>(p.x + column) + chunk;
    uint32_t offset[kPasses];
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = first + 12 * i;
      const int64_t at = row >= piece.rows ? 0 : p.x_row != nullptr ? p.x_row[piece.row0 + row] : piece.row0 + row;
      offset[i] = static_cast<uint32_t>(at * (p.x_stride / 8));
    }
    for (int k = 0; k < k_tiles; ++k, from += 8) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      const uint32_t to = smem_address(s.tokens[ring.stage]);
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const int row = first + 12 * i;
        if (row < piece.rows) copy16_async(to + row * 128 + ((chunk ^ (row & 7)) << 4), from + offset[i]);
      }
      mbarrier_arrive_after_copies(&s.full[ring.stage]);
      ring.advance();
    }
    if constexpr (S::kOnce) break;
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kGroups == 2 ? 1 : 2)
    packed_kernel(const __grid_constant__ PackedProblem p, const __grid_constant__ CUtensorMap x) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<PackedShared<S>*>(shared_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(&s.full[i], 1 + (S::kBoxes ? 1 : S::kGatherThreads));
      mbarrier_init(&s.empty[i], 4 * S::kGroups);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  let_next_start();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group == S::kGroups) {
    if constexpr (S::kGroups == 2) registers_give<56>();
    if (thread == 0)
      packed_supply_weights<S>(s, p);
    else if (thread >= 32) {
      wait_for_previous();  // weights come before; what is written depends on rows
      if constexpr (!S::kBoxes)
        packed_supply_rows<S>(s, p, thread - 32);
      else if (thread == 32)
        packed_supply_boxes<S>(s, p, x);
    }
  } else {
    if constexpr (S::kGroups == 2) registers_take<224>();
    packed_consume<S>(s, p, group, thread);
  }
}

inline constexpr size_t kMoreThanHalf = 116 * 1024;  // of a multiprocessor's shared memory

template <class S>
void launch_packed(const PackedProblem& p, int multiprocessors, cudaStream_t stream) {
  constexpr int kBytes = sizeof(PackedShared<S>);
  static_assert(kBytes <= 227 * 1024);
  CUtensorMap x{};
  if constexpr (S::kBoxes) x = bf16_boxes(p.x, p.rows, int64_t{p.n / p.group_n} * p.k, p.x_stride, S::kN);
  const int pieces = p.n / S::kBand * ((p.rows + S::kN - 1) / S::kN);
  const int resident = multiprocessors * (S::kGroups == 2 ? 1 : kBytes <= 75 * 1024 ? 3 : 2);
  // Few pieces have a multiprocessor each, also where some are still busy with the kernel in front.
  const bool alone = S::kGroups == 1 && pieces <= multiprocessors;
  launch("packed_linear", packed_kernel<S>,
         {.grid = dim3(S::kOnce ? pieces : std::min(pieces, resident)),
          .block = dim3(S::kThreads),
          .shared = alone ? kMoreThanHalf : sizeof(PackedShared<S>),
          .stream = stream,
          .early = true},
         p, x);
}

}  // namespace hadal::cuda
