// Grouped gate/up product, SwiGLU and down product of all local experts in one persistent launch.
//
// Weights are the M side of the matrix instruction, decoded from 4 or 8 bits in registers; rows (tokens) are the N side, in
// shared memory. One block a multiprocessor. With wide tiles:
//   warpgroups 0, 1   each two blocks of 64 weight rows x up to 152 tokens. While one block's products run, the
//                     other block's weights are decoded, so the matrix unit never waits for the decoding.
//   warpgroup 2       warp 0 takes work and streams packed weights with bulk copies; warps 1-3 gather token rows in
//                     16-byte pieces (Hopper's copy engine has no row gather).
// 256 x N tiles instead of the usual 128 x 256: the operand that is 4 bits wide may be reloaded often, the 16-bit one not.
// Bytes from L2 for one multiply-accumulate fall by a third, which replaces cluster multicast and lets rows be gathered.
//
// Work is ordered: all pieces of the first product, expert by expert, then all of the second; a piece of the second waits
// for a counter of its token tile. Pieces are taken in order, so what a piece waits for is finished or running.
//
// A row's sums depend neither on N nor on its place in a tile: K runs in the same steps into one fp32 accumulator.
//
// N is part of the instruction, so each width is its own code. Two kernels share this file, one with wide tiles for prefill
// and one with narrow tiles and a deeper weight pipeline for decode; either alone keeps ptxas within its means.
#pragma once

#include <type_traits>

#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
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
};

// What the sums of a piece are multiplied with at the end. Comes with the first weights: a load from the main loop's
// side would be awaited for a microsecond after the loop, and a register held through it costs more than it looks
// (ptxas then serialises the matrix instructions, C7512).
struct Factors {
  float row_scale[kTileM];
  float row_weight[160];
};

// Tile widths of a kernel: a piece of n tokens takes the first that holds it.
template <int... N>
struct WidthList {};
struct WideTiles {
  static constexpr int kMaxRows = kMaxTileRows;
  static constexpr int kStages8 = 5,
                       kStages4 = 6;  // pipeline depth with 8- and 4-bit weights: what shared memory holds
  static constexpr int kGroups = 2;   // consumer warpgroups, each with 4 / kGroups blocks of 64 weight rows
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
  using Widths = WidthList<32, 64, 96, 104, 112, 120, 128, 136, 144, 152>;
};
struct NarrowTiles {
  static constexpr int kMaxRows = kMaxNarrowTileRows;
  static constexpr int kStages8 = 7, kStages4 = 11;
  // Decoding is bound by the integer pipe (13 instructions a word at half rate: about 420 cycles a stage), which two
  // warps a scheduler do not keep busy.
  static constexpr int kGroups = 4;
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 104;
  using Widths = WidthList<8, 16, 32, 64>;
};

template <class Codec, class Tiles>
struct Shared {
  static constexpr int kStages = Codec::kTileBytes < 10000 ? Tiles::kStages4 : Tiles::kStages8;
  static constexpr int kTokenBytes = Tiles::kMaxRows * 128;
  using Ring = RingPosition<kStages>;
  uint8_t tokens[kStages][kTokenBytes];  // 128-byte swizzle
  uint8_t weights[kStages][Codec::kTileBytes];
  uint8_t results[Tiles::kGroups][kTokenBytes];  // of a warpgroup, on the way out: [token][64 values], swizzled
  Factors factors[kWork];
  Work work[kWork];
  uint64_t full[kStages], empty[kStages];
  uint64_t work_full[kWork], work_empty[kWork];
};

__device__ __forceinline__ float swiglu(float gate, float up, float limit, float weight) {
  gate = fminf(round_to_bf16(gate), limit);
  up = fminf(fmaxf(round_to_bf16(up), -limit), limit);
  return weight * (__fdividef(gate, 1.0f + __expf(-gate)) * up);
}

// Q1 over 32 channels that four neighbouring lanes hold, eight each.
__device__ __forceinline__ uint4 round_fp8_32(uint4 v) {
  uint32_t* u = reinterpret_cast<uint32_t*>(&v);
  float x[8], largest = 1e-4f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(u[i] << 16);
    x[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
    largest = fmaxf(largest, fmaxf(fabsf(x[2 * i]), fabsf(x[2 * i + 1])));
  }
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  const uint32_t bits = __float_as_uint(largest * (1.0f / 448.0f));
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffff) != 0);
  const float scale = __uint_as_float(exponent << 23), inverse = __uint_as_float((254 - exponent) << 23);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint16_t codes;
    uint32_t halves;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(x[2 * i + 1] * inverse), "f"(x[2 * i] * inverse));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
    const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&halves));
    u[i] = pack_bf16x2(f.x * scale, f.y * scale);
  }
  return v;
}

// The same value, of unknown origin to the compiler. Without it, everything that the code for the 19 tile widths has in
// common is computed once, ahead of all of them, and kept in registers through the main loops, which then spill.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// ---- one piece, by one warpgroup -------------------------------------------------------------------------------
// Writes [n tokens][8 * Chunks values] from `results` to rows of `out` (row stride in values).
template <int Chunks>
__device__ __forceinline__ void write_out(const uint8_t* results, uint16_t* out, int stride, int n, int thread,
                                          bool round) {
  const int chunk = thread % Chunks;
#pragma unroll 4
  for (int i = thread / Chunks; i < n; i += 128 / Chunks) {
    uint4 v = *reinterpret_cast<const uint4*>(results + i * 128 + ((chunk ^ (i & 7)) << 4));
    if (round) v = round_fp8_32(v);
    *reinterpret_cast<uint4*>(out + static_cast<size_t>(i) * stride + chunk * 8) = v;
  }
}

template <int N, class S>
__device__ __forceinline__ void finish_piece(S& s, const Work& work, const GroupedArgs& args, int group, int thread,
                                             const float (&sum0)[N / 2], const float (&sum1)[N / 2]) {
  const int warp = thread >> 5, lane = thread & 31;
  const Factors& factors = s.factors[work.factors];
  float row_scale[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    row_scale[i] = factors.row_scale[(2 * group + (i >> 1)) * 64 + warp * 16 + (lane >> 2) + (i & 1) * 8];
  const int barrier = 1 + group, n = opaque(work.n);
  uint8_t* results = s.results[group];
  const uint32_t store = smem_address(results) + (lane & 7) * 128;
  const int matrix = (lane >> 3) & 1;
  named_barrier(barrier, 128);  // the results of the piece before have left
  if (work.product == 0) {
    const uint32_t address = store + (((matrix * 4 + warp) ^ (lane & 7)) << 4);
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const float2 w = *reinterpret_cast<const float2*>(factors.row_weight + 8 * j + 2 * (lane & 3));
      const uint32_t first =
          pack_bf16x2(swiglu(sum0[4 * j] * row_scale[0], sum0[4 * j + 2] * row_scale[1], args.limit, w.x),
                      swiglu(sum0[4 * j + 1] * row_scale[0], sum0[4 * j + 3] * row_scale[1], args.limit, w.y));
      const uint32_t second =
          pack_bf16x2(swiglu(sum1[4 * j] * row_scale[2], sum1[4 * j + 2] * row_scale[3], args.limit, w.x),
                      swiglu(sum1[4 * j + 1] * row_scale[2], sum1[4 * j + 3] * row_scale[3], args.limit, w.y));
      store_matrix2_transposed(address + j * 1024, first, second);
    }
    named_barrier(barrier, 128);
    uint16_t* out = args.activated + static_cast<size_t>(work.row0) * args.width + work.band * 128 + group * 64;
    write_out<8>(results, out, args.width, n, thread, args.round_activations);
    named_barrier(barrier, 128);
    if (thread == 0) {
      __threadfence();
      add_release(&args.plan.done[work.tile], 1);
    }
  } else {
    const uint32_t address = store + (((2 * warp + matrix) ^ (lane & 7)) << 4);
    uint16_t* out = args.out + static_cast<size_t>(work.row0) * args.d + work.band * kTileM + group * 128;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
      store_matrix2_transposed(address + j * 1024,
                               pack_bf16x2(sum0[4 * j] * row_scale[0], sum0[4 * j + 1] * row_scale[0]),
                               pack_bf16x2(sum0[4 * j + 2] * row_scale[1], sum0[4 * j + 3] * row_scale[1]));
    named_barrier(barrier, 128);
    write_out<8>(results, out, args.d, n, thread, false);
    named_barrier(barrier, 128);
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
      store_matrix2_transposed(address + j * 1024,
                               pack_bf16x2(sum1[4 * j] * row_scale[2], sum1[4 * j + 1] * row_scale[2]),
                               pack_bf16x2(sum1[4 * j + 2] * row_scale[3], sum1[4 * j + 3] * row_scale[3]));
    named_barrier(barrier, 128);
    write_out<8>(results, out + 64, args.d, n, thread, false);
  }
}

// The same for a group with one block.
template <int N, class S>
__device__ __forceinline__ void finish_narrow(S& s, const Work& work, const GroupedArgs& args, int group, int thread,
                                              const float (&sum)[N / 2]) {
  const int warp = thread >> 5, lane = thread & 31;
  const Factors& factors = s.factors[work.factors];
  const float low = factors.row_scale[group * 64 + warp * 16 + (lane >> 2)];
  const float high = factors.row_scale[group * 64 + warp * 16 + (lane >> 2) + 8];
  const int barrier = 1 + group, n = opaque(work.n);
  uint8_t* results = s.results[group];
  const uint32_t store = smem_address(results) + (lane & 7) * 128;
  named_barrier(barrier, 128);  // the results of the piece before have left
  if (work.product == 0) {
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const float2 w = *reinterpret_cast<const float2*>(factors.row_weight + 8 * j + 2 * (lane & 3));
      store_matrix1_transposed(store + j * 1024 + ((warp ^ (lane & 7)) << 4),
                               pack_bf16x2(swiglu(sum[4 * j] * low, sum[4 * j + 2] * high, args.limit, w.x),
                                           swiglu(sum[4 * j + 1] * low, sum[4 * j + 3] * high, args.limit, w.y)));
    }
    named_barrier(barrier, 128);
    uint16_t* out = args.activated + static_cast<size_t>(work.row0) * args.width + work.band * 128 + group * 32;
    write_out<4>(results, out, args.width, n, thread, args.round_activations);
    named_barrier(barrier, 128);
    if (thread == 0) {
      __threadfence();
      add_release(&args.plan.done[work.tile], 1);
    }
  } else {
    const int matrix = (lane >> 3) & 1;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
      store_matrix2_transposed(store + j * 1024 + (((2 * warp + matrix) ^ (lane & 7)) << 4),
                               pack_bf16x2(sum[4 * j] * low, sum[4 * j + 1] * low),
                               pack_bf16x2(sum[4 * j + 2] * high, sum[4 * j + 3] * high));
    named_barrier(barrier, 128);
    write_out<8>(results, args.out + static_cast<size_t>(work.row0) * args.d + work.band * kTileM + group * 64, args.d,
                 n, thread, false);
  }
}

// Few tokens: products are short, decoding is what counts. Two sets of operand registers, so that a stage is decoded while
// the products of the stage before run. (Products in flight over the loop's back edge would do without the wait at its
// end, but ptxas then serialises them: C7512.)
template <class Codec, class S>
__device__ __forceinline__ void decode_stage(S& s, const typename S::Ring& ring, int block, int thread,
                                             uint32_t (&a)[16]) {
  mbarrier_wait(&s.full[ring.stage], ring.parity);
  fence_async_shared();  // token rows came by cp.async, the matrix unit reads them through the other proxy; before the
                         // loads, since the fence waits for them
  Codec::decode(Codec::load(s.weights[ring.stage], block, thread), a);
}

template <int N, class S>
__device__ __forceinline__ void multiply_stage(S& s, const typename S::Ring& ring, float* sum,
                                               const uint32_t (&a)[16]) {
  const uint64_t tokens = k_major_descriptor(smem_address(s.tokens[ring.stage]));
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < 4; ++j) Wgmma<N>::rs(sum, a + 4 * j, tokens + 2 * j, 1);
  wgmma_commit();
}

template <class Codec, int N, class S>
__device__ __forceinline__ void main_loop_narrow(S& s, typename S::Ring& ring, int k_tiles, int block, int thread,
                                                 float* sum) {
  uint32_t a[16], b[16];
  const bool leader = thread % 32 == 0;
  decode_stage<Codec>(s, ring, block, thread, a);
  int k = k_tiles;  // even: hidden size and width are multiples of 128
  do {
    uint64_t* empty_a = &s.empty[ring.stage];
    multiply_stage<N>(s, ring, sum, a);
    ring.advance();
    uint64_t* empty_b = &s.empty[ring.stage];
    decode_stage<Codec>(s, ring, block, thread, b);
    multiply_stage<N>(s, ring, sum, b);
    ring.advance();
    wgmma_wait<1>();
    if (leader) mbarrier_arrive(empty_a);
    k -= 2;
    if (k > 0) decode_stage<Codec>(s, ring, block, thread, a);
    wgmma_wait<0>();
    if (leader) mbarrier_arrive(empty_b);
  } while (k > 0);
}

// Many tokens: while one block's products run, the other block's weights are decoded.
template <class Codec, int N, class S>
__device__ __forceinline__ void main_loop_wide(S& s, typename S::Ring& ring, int k_tiles, int group, int thread,
                                               float* sum0, float* sum1) {
  uint32_t a0[16], a1[16];
  mbarrier_wait(&s.full[ring.stage], ring.parity);
  auto raw0 = Codec::load(s.weights[ring.stage], 2 * group, thread);
  auto raw1 = Codec::load(s.weights[ring.stage], 2 * group + 1, thread);
  Codec::decode(raw0, a0);
  int k = k_tiles;
  do {
    const uint64_t tokens = k_major_descriptor(smem_address(s.tokens[ring.stage]));
    uint64_t* empty = &s.empty[ring.stage];
    fence_async_shared();  // token rows came by cp.async, the matrix unit reads them through the other proxy
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; ++j) Wgmma<N>::rs(sum0, a0 + 4 * j, tokens + 2 * j, 1);
    wgmma_commit();
    Codec::decode(raw1, a1);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; ++j) Wgmma<N>::rs(sum1, a1 + 4 * j, tokens + 2 * j, 1);
    wgmma_commit();
    wgmma_wait<1>();  // block 0 is done: its operand registers are free
    ring.advance();
    if (--k > 0) {
      mbarrier_wait(&s.full[ring.stage], ring.parity);
      raw0 = Codec::load(s.weights[ring.stage], 2 * group, thread);
      raw1 = Codec::load(s.weights[ring.stage], 2 * group + 1, thread);
      Codec::decode(raw0, a0);
    }
    wgmma_wait<0>();
    if (thread % 32 == 0) mbarrier_arrive(empty);
  } while (k > 0);
}

template <class Codec, class Tiles, int N, class S>
__device__ __forceinline__ void run_piece(S& s, typename S::Ring& ring, const Work& work, const GroupedArgs& args,
                                          int group, int thread) {
  thread = opaque(thread);  // see opaque()
  group = opaque(group);
  const int k_tiles = (work.product == 0 ? args.d : args.width) / kTileK;
  // Sums are cleared here rather than by the first instruction, so that they have one definition a piece.
  if constexpr (Tiles::kGroups == 2) {
    float sum0[N / 2], sum1[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sum0[i] = sum1[i] = 0;
    main_loop_wide<Codec, N>(s, ring, k_tiles, group, thread, sum0, sum1);
    finish_piece<N>(s, work, args, opaque(group), opaque(thread), sum0, sum1);
  } else {
    float sum[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sum[i] = 0;
    main_loop_narrow<Codec, N>(s, ring, k_tiles, group, thread, sum);
    finish_narrow<N>(s, work, args, opaque(group), opaque(thread), sum);
  }
}

// One test after the other, not a switch, and kept from becoming one: with an indirect branch or nested branches ptxas
// gives up keeping the sums in registers (C7512).
template <class Codec, class Tiles, class S, int... N>
__device__ __forceinline__ void run_width(WidthList<N...>, S& s, typename S::Ring& ring, const Work& work,
                                          const GroupedArgs& args, int group, int thread) {
  int width = 0;
  ((width = width == 0 && work.n <= N ? N : width), ...);
  const auto run = [&]<int W>(std::integral_constant<int, W>) __attribute__((always_inline)) {
    if (opaque(width) == W) run_piece<Codec, Tiles, W>(s, ring, work, args, group, thread);
  };
  (run(std::integral_constant<int, N>{}), ...);
}

template <class Codec, class Tiles, class S>
__device__ __forceinline__ void consume(S& s, const GroupedArgs& args, int group, int thread) {
  typename S::Ring ring;
  RingPosition<kWork> queue;
  while (true) {
    mbarrier_wait(&s.work_full[queue.stage], queue.parity);
    const Work& work = s.work[queue.stage];  // read again after the main loop rather than kept in registers
    if (work.product < 0) return;
    run_width<Codec, Tiles>(typename Tiles::Widths{}, s, ring, work, args, group, thread);
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
  const size_t band_bytes = static_cast<size_t>(k / kTileK) * Codec::kTileBytes;
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
  while (true) {
    Work work = work_of<Codec>(args, atomicAdd(args.plan.next, 1), tiles);
    work.factors = queue.stage;
    mbarrier_wait(&s.work_empty[queue.stage], queue.parity ^ 1);
    s.work[queue.stage] = work;
    mbarrier_arrive(&s.work_full[queue.stage]);
    queue.advance();
    if (work.product < 0) return;
    const int k_tiles = (work.product == 0 ? args.d : args.width) / kTileK;
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

// 96 threads: eight lanes a row of 128 bytes, twelve rows at a time.
template <class Tiles, class S>
__device__ __forceinline__ void supply_tokens(S& s, const GroupedArgs& args, int thread) {
  constexpr int kPasses = (Tiles::kMaxRows + 11) / 12;
  typename S::Ring ring;
  RingPosition<kWork> queue;
  const int chunk = thread & 7, first = thread >> 3;
  // Rows 12 apart differ by 4 in the swizzle: two alternating destinations.
  const uint32_t to_even = first * 128 + ((chunk ^ (first & 7)) << 4);
  const uint32_t to_odd = first * 128 + ((chunk ^ ((first + 4) & 7)) << 4);
  const int needed = Tiles::kGroups * (2 * args.width / kTileM);
  while (true) {
    mbarrier_wait(&s.work_full[queue.stage], queue.parity);
    const Work& shared_work = s.work[queue.stage];
    const int product = shared_work.product, row0 = shared_work.row0, n = shared_work.n, tile = shared_work.tile;
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(&s.work_empty[queue.stage]);
    queue.advance();
    if (product < 0) return;
    const int k_tiles = (product == 0 ? args.d : args.width) / kTileK;
    const uint32_t row_chunks = (product == 0 ? args.d : args.width) / 8;
    const uint4* from = reinterpret_cast<const uint4*>(product == 0 ? args.x : args.activated) + chunk;
    uint32_t offset[kPasses];
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const int row = first + 12 * p;
      const int source = row >= n ? 0 : product == 0 ? args.plan.row_token[row0 + row] : row0 + row;
      offset[p] = static_cast<uint32_t>(source) * row_chunks;
    }
    if (product == 1) {
      if (thread % 32 == 0)
        while (load_acquire(&args.plan.done[tile]) < needed) __nanosleep(64);
      __syncwarp();
    }
    for (int k = 0; k < k_tiles; ++k, from += 8) {
      mbarrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
      const uint32_t to = smem_address(s.tokens[ring.stage]);
#pragma unroll
      for (int p = 0; p < kPasses; ++p)
        if (first + 12 * p < n) copy16_async(to + (p & 1 ? to_odd : to_even) + p * 1536, from + offset[p]);
      mbarrier_arrive_after_copies(&s.full[ring.stage]);
      ring.advance();
    }
  }
}

template <class Codec, class Tiles>
__global__ void __launch_bounds__((Tiles::kGroups + 1) * 128, 1)
    grouped_kernel(const __grid_constant__ GroupedArgs args) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<Shared<Codec, Tiles>*>(shared_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.kStages; ++i) {
      mbarrier_init(&s.full[i], 1 + kGatherThreads);
      mbarrier_init(&s.empty[i], 4 * Tiles::kGroups);
    }
    for (int i = 0; i < kWork; ++i) {
      mbarrier_init(&s.work_full[i], 1);
      mbarrier_init(&s.work_empty[i], 4 * Tiles::kGroups + kGatherThreads / 32);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group == Tiles::kGroups) {
    registers_give<Tiles::kProducerRegisters>();
    if (thread == 0)
      supply_weights<Codec>(s, args);
    else if (thread >= 32)
      supply_tokens<Tiles>(s, args, thread - 32);
  } else {
    registers_take<Tiles::kConsumerRegisters>();
    consume<Codec, Tiles>(s, args, group, thread);
  }
}

template <class Codec, class Tiles>
void launch_grouped(const GroupedArgs& args, int multiprocessors, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared<Codec, Tiles>);
  static_assert(kBytes <= 227 * 1024);
  static const cudaError_t prepared =
      cudaFuncSetAttribute(grouped_kernel<Codec, Tiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  HADAL_CUDA(prepared);
  grouped_kernel<Codec, Tiles><<<multiprocessors, (Tiles::kGroups + 1) * 128, kBytes, stream>>>(args);
  HADAL_CUDA_LAUNCHED("grouped_kernel");
}

}  // namespace hadal::cuda
