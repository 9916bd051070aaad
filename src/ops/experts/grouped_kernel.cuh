// Grouped gate/up product, SwiGLU and down product of all local experts in one persistent launch: the frame that all its
// kernels share, which is work, supply and dispatch. grouped_bf16.cuh and grouped_fp8.cuh have the products.
//
// Weights are the M side of the matrix instruction, decoded from 4 bits in registers; rows (tokens) are the N side, in
// shared memory. One block a multiprocessor. With wide tiles:
//   warpgroups 0, 1   each two blocks of 64 weight rows x all tokens of the tile. While one block's products run, the
//                     other block's weights are decoded, so the matrix unit never waits for the decoding.
//   warpgroup 2       warp 0 takes work and streams packed weights with bulk copies; warps 1-3 gather token rows in
//                     16-byte pieces (Hopper's copy engine has no row gather).
// 256 x N tiles instead of the usual 128 x 256: the operand that is 4 bits wide may be reloaded often, the other one not.
// Bytes from L2 for one multiply-accumulate fall by a third, which replaces cluster multicast and lets rows be gathered.
//
// A stage is 128 bytes of every token row: 64 values in bf16, 128 in FP8.
//
// Work is ordered: all pieces of the first product, expert by expert, then all of the second; a piece of the second waits
// for a counter of its token tile. Pieces are taken in order, so what a piece waits for is finished or running.
//
// A row's sums depend neither on N nor on its place in a tile: K runs in the same steps, in the same order.
//
// N is part of the instruction, so each width is its own code. Each numeric mode has two kernels, one with wide tiles for
// prefill and one with narrow tiles and a deeper weight pipeline for decode; either alone keeps ptxas within its means.
#pragma once

#include <type_traits>

#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/wgmma.cuh"
#include "ops/experts/codec.cuh"
#include "ops/experts/grouped.h"

namespace hadal::cuda {

constexpr int kGatherThreads = 96;
constexpr int kWork = 4;  // pieces announced ahead

struct Work {
  const uint8_t* weights;  // first tile of the row band
  const float* row_scale;  // of the row band
  int product;             // 0 gate/up, 1 down, -1 no more work
  int band;                // which 256 packed weight rows
  int row0;
  int n;
  int tile;
  int factors;
  int first_products;  // pieces of product 0 that this block took before
};

// What the sums of a piece are multiplied with at the end. Comes with the first weights: a load from the main loop's
// side would be awaited for a microsecond after the loop, and a register held through it costs more than it looks
// (ptxas then serialises the matrix instructions, C7512).
struct alignas(16) Factors {
  float row_scale[kTileM];
  float row_weight[160];
};

// Tile widths of a kernel: a piece of n tokens takes the first that holds it.
template <int... N>
struct WidthList {};
// Scales lie as the results of the matrix instruction do: lane q of a quad has columns 2q and 2q + 1 of every eight, and finds
// theirs in one run. Runs are 16 bytes apart in the banks.
constexpr int scale_run(int rows) { return rows / 4 + 4; }
template <int Rows>
__device__ __forceinline__ int scale_place(int row) {
  return (row >> 1 & 3) * scale_run(Rows) + (row >> 3) * 2 + (row & 1);
}

// M: the products of one numeric mode and one set of tile widths.
template <class M>
struct Shared {
  using Tiles = typename M::Tiles;
  using Codec = typename M::Codec;
  static constexpr int kStages = Tiles::kStages;
  static constexpr int kTokenBytes = Tiles::kMaxRows * 128;
  using Ring = RingPosition<kStages>;
  uint8_t tokens[kStages][kTokenBytes];  // 128-byte swizzle
  uint8_t weights[kStages][Codec::kTileBytes];
  uint8_t results[Tiles::kGroups][kTokenBytes];  // of a warpgroup, on the way out: [token][64 values], swizzled
  // FP8: what a token's sums over the 128 channels of the stage are multiplied with; see scale_place().
  alignas(16) float token_scale[M::kScaled ? kStages : 1][4 * scale_run(Tiles::kMaxRows)];
  Factors factors[kWork];
  Work work[kWork];
  uint64_t full[kStages], empty[kStages];
  uint64_t work_full[kWork], work_empty[kWork];
  typename M::Extra extra;
};

// The same value, of unknown origin to the compiler. Without it, everything that the code for the 19 tile widths has in
// common is computed once, ahead of all of them, and kept in registers through the main loops, which then spill.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// The same in every lane, and known to be: what is computed from it stays in uniform registers. The matrix instruction takes its
// descriptors from there; computed in every lane, each cost an addition and two moves of 10 cycles.
__device__ __forceinline__ uint32_t uniform(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }

template <class S>
__device__ __forceinline__ uint64_t stage_tokens(S& s, int stage) {
  const uint64_t descriptor = k_major_descriptor(smem_address(s.tokens[stage]));
  return uniform(static_cast<uint32_t>(descriptor)) | descriptor >> 32 << 32;
}

// One test after the other, not a switch, and kept from becoming one: with an indirect branch or nested branches ptxas
// gives up keeping the sums in registers (C7512).
template <class M, class S, int... N>
__device__ __forceinline__ void run_width(WidthList<N...>, S& s, typename S::Ring& ring, const Work& work,
                                          const GroupedArgs& args, int group, int thread) {
  int width = 0;
  ((width = width == 0 && work.n <= N ? N : width), ...);
  const auto run = [&]<int W>(std::integral_constant<int, W>) __attribute__((always_inline)) {
    if (opaque(width) == W) M::template run<W>(s, ring, work, args, opaque(group), opaque(thread));
  };
  (run(std::integral_constant<int, N>{}), ...);
}

template <class M, class S>
__device__ __forceinline__ void consume(S& s, const GroupedArgs& args, int group, int thread) {
  typename S::Ring ring;
  RingPosition<kWork> queue;
  while (true) {
    mbarrier_wait(&s.work_full[queue.stage], queue.parity);
    const Work& work = s.work[queue.stage];  // read again after the main loop rather than kept in registers
    if (work.product < 0) return;
    run_width<M>(typename M::Tiles::Widths{}, s, ring, work, args, group, thread);
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(&s.work_empty[queue.stage]);
    queue.advance();
  }
}

// ---- supply ----------------------------------------------------------------------------------------------------
// Piece number -> what to do. For one expert, the token tiles of a weight band follow each other, so that its weights
// come from memory once.
template <class Codec>
__device__ __forceinline__ Work work_of(const GroupedArgs& args, int number, int tiles) {
  Work work;
  const int bands0 = 2 * args.width / kTileM, bands1 = args.d / kTileM;
  work.product = 0;
  int bands = bands0, k = args.d;
  if (number >= tiles * bands0) {
    number -= tiles * bands0;
    work.product = 1;
    bands = bands1;
    k = args.width;
    if (number >= tiles * bands1) {
      work.product = -1;
      return work;
    }
  }
  const TokenTile any = args.plan.tiles[number / bands];
  const int in_expert = number - any.first * bands;
  work.band = in_expert / any.count;
  work.tile = any.first + in_expert % any.count;
  const TokenTile tile = args.plan.tiles[work.tile];
  work.row0 = tile.row0;
  work.n = tile.n;
  const PackedPointers& packed = args.weights[tile.slot];
  const uint8_t* matrix = work.product == 0 ? packed.gate_up : packed.down;
  const size_t band_bytes = static_cast<size_t>(k / Codec::kTileK) * Codec::kTileBytes;
  work.weights = matrix + work.band * band_bytes;
  work.row_scale = reinterpret_cast<const float*>(matrix + bands * band_bytes) + work.band * kTileM;
  return work;
}

// One thread: takes pieces and streams their weights.
template <class Codec, class S>
__device__ __forceinline__ void supply_weights(S& s, const GroupedArgs& args) {
  typename S::Ring ring;
  RingPosition<kWork> queue;
  const int tiles = *args.plan.tile_count;
  int first_products = 0;
  while (true) {
    Work work = work_of<Codec>(args, atomicAdd(args.plan.next, 1), tiles);
    work.factors = queue.stage;
    work.first_products = first_products;
    first_products += work.product == 0;
    mbarrier_wait(&s.work_empty[queue.stage], queue.parity ^ 1);
    s.work[queue.stage] = work;
    mbarrier_arrive(&s.work_full[queue.stage]);
    queue.advance();
    if (work.product < 0) return;
    const int k_tiles = (work.product == 0 ? args.d : args.width) / Codec::kTileK;
    const uint8_t* from = work.weights;
    Factors& factors = s.factors[work.factors];
    for (int k = 0; k < k_tiles; ++k, from += Codec::kTileBytes) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &s.full[ring.stage];
      if (k == 0) {
        const uint32_t row_bytes = work.product == 0 ? work.n * sizeof(float) : 0;
        mbarrier_arrive_expect(full, Codec::kTileBytes + sizeof(factors.row_scale) + row_bytes);
        bulk_copy(factors.row_scale, work.row_scale, sizeof(factors.row_scale), full);
        if (row_bytes) bulk_copy(factors.row_weight, args.plan.row_weight + work.row0, row_bytes, full);
      } else {
        mbarrier_arrive_expect(full, Codec::kTileBytes);
      }
      bulk_copy(s.weights[ring.stage], from, Codec::kTileBytes, full);
      ring.advance();
    }
  }
}

// 96 threads: eight lanes a row of 128 bytes, twelve rows at a time. FP8 scales of a row are read four stages at a time and
// stored one a stage; past L1, since other blocks write those of the second product during the launch.
template <class M, class S>
__device__ __forceinline__ void supply_tokens(S& s, const GroupedArgs& args, int thread) {
  using Tiles = typename M::Tiles;
  constexpr int kPasses = (Tiles::kMaxRows + 11) / 12;
  constexpr int kScaleRows = M::kScaled ? (Tiles::kMaxRows + kGatherThreads - 1) / kGatherThreads : 0;
  typename S::Ring ring;
  RingPosition<kWork> queue;
  const int chunk = thread & 7, first = thread >> 3;
  // Rows 12 apart differ by 4 in the swizzle: two alternating destinations.
  const uint32_t to_even = first * 128 + ((chunk ^ (first & 7)) << 4);
  const uint32_t to_odd = first * 128 + ((chunk ^ ((first + 4) & 7)) << 4);
  const int needed = M::kArrivals * (2 * args.width / kTileM);
  while (true) {
    mbarrier_wait(&s.work_full[queue.stage], queue.parity);
    const Work& shared_work = s.work[queue.stage];
    const int product = shared_work.product, row0 = shared_work.row0, n = shared_work.n, tile = shared_work.tile;
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(&s.work_empty[queue.stage]);
    queue.advance();
    if (product < 0) return;
    const int k_tiles = (product == 0 ? args.d : args.width) / M::Codec::kTileK;
    const uint4* from = static_cast<const uint4*>(product == 0 ? args.x : args.activated) + chunk;
    const auto source_of = [&](int row) {
      return row >= n ? 0 : product == 0 ? args.plan.row_token[row0 + row] : row0 + row;
    };
    uint32_t offset[kPasses];
#pragma unroll
    for (int p = 0; p < kPasses; ++p) offset[p] = static_cast<uint32_t>(source_of(first + 12 * p)) * (k_tiles * 8);
    const float4* scale[kScaleRows + 1];
    float4 scales[kScaleRows + 1];
    if constexpr (M::kScaled) {
#pragma unroll
      for (int r = 0; r < kScaleRows; ++r)
        scale[r] = reinterpret_cast<const float4*>(product == 0 ? args.x_scale : args.activated_scale) +
                   static_cast<size_t>(source_of(thread + r * kGatherThreads)) * (scale_stride(k_tiles) / 4);
    }
    if (product == 1) {
      if (thread % 32 == 0)
        while (load_acquire(&args.plan.done[tile]) < needed) __nanosleep(64);
      __syncwarp();
    }
    for (int k = 0; k < k_tiles; ++k, from += 8) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      if constexpr (M::kScaled)
        if (k % 4 == 0) {
#pragma unroll
          for (int r = 0; r < kScaleRows; ++r) scales[r] = __ldcg(scale[r]++);
        }
      const uint32_t to = smem_address(s.tokens[ring.stage]);
#pragma unroll
      for (int p = 0; p < kPasses; ++p)
        if (first + 12 * p < n) copy16_async(to + (p & 1 ? to_odd : to_even) + p * 1536, from + offset[p]);
      mbarrier_arrive_after_copies(&s.full[ring.stage]);
      if constexpr (M::kScaled) {
#pragma unroll
        for (int r = 0; r < kScaleRows; ++r) {
          if (thread + r * kGatherThreads < Tiles::kMaxRows)
            s.token_scale[ring.stage][scale_place<Tiles::kMaxRows>(thread + r * kGatherThreads)] = scales[r].x;
          scales[r] = {scales[r].y, scales[r].z, scales[r].w, 0};
        }
        __syncwarp();
        if (thread % 32 == 0) mbarrier_arrive(&s.full[ring.stage]);
      }
      ring.advance();
    }
  }
}

template <class M>
__global__ void __launch_bounds__((M::Tiles::kGroups + 1) * 128, 1)
    grouped_kernel(const __grid_constant__ GroupedArgs args) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<Shared<M>*>(shared_bytes);
  using Tiles = typename M::Tiles;
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.kStages; ++i) {
      mbarrier_init(&s.full[i], 1 + kGatherThreads + (M::kScaled ? kGatherThreads / 32 : 0));
      mbarrier_init(&s.empty[i], 4 * Tiles::kGroups);
    }
    for (int i = 0; i < kWork; ++i) {
      mbarrier_init(&s.work_full[i], 1);
      mbarrier_init(&s.work_empty[i], 4 * Tiles::kGroups + kGatherThreads / 32);
    }
    M::prepare(s);
    mbarrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group == Tiles::kGroups) {
    registers_give<Tiles::kProducerRegisters>();
    if (thread == 0)
      supply_weights<typename M::Codec>(s, args);
    else if (thread >= 32)
      supply_tokens<M>(s, args, thread - 32);
  } else {
    registers_take<Tiles::kConsumerRegisters>();
    consume<M>(s, args, group, thread);
  }
}

template <class M>
void launch_grouped(const GroupedArgs& args, int multiprocessors, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared<M>);
  static_assert(kBytes <= 227 * 1024);
  static const cudaError_t prepared =
      cudaFuncSetAttribute(grouped_kernel<M>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  HADAL_CUDA(prepared);
  launch("grouped_kernel", grouped_kernel<M>,
         {.grid = dim3(multiprocessors),
          .block = dim3((M::Tiles::kGroups + 1) * 128),
          .shared = kBytes,
          .stream = stream,
          .early = true},
         args);
}

}  // namespace hadal::cuda
