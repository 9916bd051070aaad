// Products of FP8 rows: E5M2 weights, the scale of their block in the exponent, and E4M3 codes meet in steps of 32. The matrix
// unit's sums of 8-bit products keep about 14 bits, so the sums over 128 values of k start at zero and are added to fp32 sums,
// multiplied with the scale that the row has for these 128 channels.
#pragma once

#include "ops/experts/expert_rows.cuh"
#include "ops/experts/grouped_finish.cuh"

namespace hadal::cuda {

struct WideTiles8 {
  static constexpr int kMaxRows = kMaxTileRows8;
  static constexpr int kStages = 5;
  static constexpr int kGroups = 2;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  using Widths = WidthList<32, 64, 96, 128>;  // with some other sets ptxas serialises the products (C7511)
};
struct NarrowTiles8 {
  static constexpr int kMaxRows = kMaxNarrowTileRows;
  static constexpr int kStages = 7;
  static constexpr int kGroups = 4;
  static constexpr int kProducerRegisters = 32, kConsumerRegisters = 112;
  using Widths = WidthList<8, 16, 32, 64>;
};

// Two k32 steps.
template <int N>
__device__ __forceinline__ void multiply_half(float* partial, const uint32_t* a, uint64_t tokens, bool start) {
  wgmma_fence();
  Wgmma<N>::rs_e5m2(partial, a, tokens, start ? 0 : 1);
  Wgmma<N>::rs_e5m2(partial, a + 4, tokens + 2, 1);
  wgmma_commit();
}

// All four steps of a stage.
template <int N>
__device__ __forceinline__ void multiply(float* partial, const uint32_t* a, uint64_t tokens) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) Wgmma<N>::rs_e5m2(partial, a + 4 * i, tokens + 2 * i, i == 0 ? 0 : 1);
  wgmma_commit();
}

// Scales of this lane's columns.
template <int N>
struct Scales {
  float of[N / 4];
  __device__ __forceinline__ explicit Scales(const float* run) {
#pragma unroll
    for (int j = 0; j + 1 < N / 8; j += 2) {
      const float4 w = *reinterpret_cast<const float4*>(run + 2 * j);
      of[2 * j] = w.x, of[2 * j + 1] = w.y, of[2 * j + 2] = w.z, of[2 * j + 3] = w.w;
    }
    if constexpr (N / 8 % 2 != 0) {
      const float2 w = *reinterpret_cast<const float2*>(run + N / 4 - 2);
      of[N / 4 - 2] = w.x, of[N / 4 - 1] = w.y;
    }
  }
};

// Adds awaited products to the fp32 sums.
template <int N>
__device__ __forceinline__ void promote(float* sum, const float* partial, const Scales<N>& scales) {
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const float x = scales.of[2 * j], y = scales.of[2 * j + 1];
    sum[4 * j] = fmaf(partial[4 * j], x, sum[4 * j]);
    sum[4 * j + 1] = fmaf(partial[4 * j + 1], y, sum[4 * j + 1]);
    sum[4 * j + 2] = fmaf(partial[4 * j + 2], x, sum[4 * j + 2]);
    sum[4 * j + 3] = fmaf(partial[4 * j + 3], y, sum[4 * j + 3]);
  }
  Wgmma<N>::settle(sum);
}

// Scales are loaded ahead of the wait where registers allow it.
template <int N, bool Ahead>
__device__ __forceinline__ void await_and_add(float* sum, float* partial, const float* scale) {
  if constexpr (Ahead) {
    const Scales<N> scales(scale);
    Wgmma<N>::await(partial);
    promote<N>(sum, partial, scales);
  } else {
    Wgmma<N>::await(partial);
    promote<N>(sum, partial, Scales<N>(scale));
  }
}

// One block of 64 weight rows a warpgroup. It is decoded in two halves of 64 values of k: the second while the products of the
// first run, the first of the next stage while the products of the second run.
template <int N, class S>
__device__ __forceinline__ void main_loop_one_block(S& s, typename S::Ring& ring, int k_tiles, int block, int thread,
                                                    int scale_run, float* sum) {
  using Codec = E5m2Codec;
  float partial[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) partial[i] = 0;
  uint32_t a[16];
  mbarrier_wait(&s.full[ring.stage], ring.parity);
  auto tables = Codec::tables(Codec::load_exponents(s.weights[ring.stage], block, thread));
  Codec::decode(Codec::load(s.weights[ring.stage], block, 0, thread), tables, a);
  int k = k_tiles;
  do {
    const uint64_t tokens = stage_tokens(s, ring.stage);
    const float* scale = s.token_scale[ring.stage] + scale_run;
    uint64_t* empty = &s.empty[ring.stage];
    const uint4 raw = Codec::load(s.weights[ring.stage], block, 1, thread);
    multiply_half<N>(partial, a, tokens, true);
    Codec::decode(raw, tables, a + 8);
    multiply_half<N>(partial, a + 8, tokens + 4, false);
    wgmma_wait<1>();  // the first half's operand registers are free
    ring.advance();
    if (--k > 0) {
      mbarrier_wait(&s.full[ring.stage], ring.parity);
      tables = Codec::tables(Codec::load_exponents(s.weights[ring.stage], block, thread));
      Codec::decode(Codec::load(s.weights[ring.stage], block, 0, thread), tables, a);
    }
    await_and_add<N, (N < 64)>(sum, partial, scale);
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(empty);
  } while (k > 0);
}

// Two blocks of 64 weight rows a warpgroup, each with operand registers of its own: while the products of one block run, the
// other is decoded, one half for each part of the tokens. Tiles of more than 64 tokens are multiplied in two parts one after the
// other, so that partial sums and scales of one part fit beside the sums of all.
template <int N, class S>
__device__ __forceinline__ void main_loop_two_blocks(S& s, typename S::Ring& ring, int k_tiles, int block, int thread,
                                                     int scale_run, float* sum0, float* sum1) {
  using Codec = E5m2Codec;
  constexpr int kLow = N <= 64 ? N : (N / 16 + 1) / 2 * 16, kHigh = N - kLow;
  float partial[kLow / 2];
#pragma unroll
  for (int i = 0; i < kLow / 2; ++i) partial[i] = 0;
  uint32_t a[2][16];
  Codec::Tables tables;
  uint32_t exponents;
  uint4 raw;
  const auto load_block = [&](const uint8_t* tile, int b) __attribute__((always_inline)) {
    exponents = Codec::load_exponents(tile, b, thread);
    raw = Codec::load(tile, b, 0, thread);
  };
  const auto decode_first = [&](const uint8_t* tile, int b, uint32_t* to) __attribute__((always_inline)) {
    tables = Codec::tables(exponents);
    Codec::decode(raw, tables, to);
    raw = Codec::load(tile, b, 1, thread);
  };

  mbarrier_wait(&s.full[ring.stage], ring.parity);
  load_block(s.weights[ring.stage], block);
  decode_first(s.weights[ring.stage], block, a[0]);
  Codec::decode(raw, tables, a[0] + 8);
  int k = k_tiles;
  do {
    const uint8_t* tile = s.weights[ring.stage];
    const uint64_t tokens = stage_tokens(s, ring.stage);
    const float* scale = s.token_scale[ring.stage] + scale_run;
    uint64_t* empty = &s.empty[ring.stage];
    load_block(tile, block + 1);
    ring.advance();
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float* sum = b == 0 ? sum0 : sum1;
      multiply<kLow>(partial, a[b], tokens);
      const Scales<kLow> low(scale);
      // After the last stage its own block is decoded once more, for nothing: with a branch here ptxas serialises (C7511).
      const uint8_t* next = b == 0 || k == 1 ? tile : s.weights[ring.stage];
      if (b == 1) {
        if (k > 1) mbarrier_wait(&s.full[ring.stage], ring.parity);
        load_block(next, block);
      }
      decode_first(next, block + 1 - b, a[1 - b]);
      Wgmma<kLow>::await(partial);
      promote<kLow>(sum, partial, low);
      if constexpr (kHigh > 0) {
        multiply<kHigh>(partial, a[b], tokens + kLow * 8);
        const Scales<kHigh> high(scale + kLow / 4);
        Codec::decode(raw, tables, a[1 - b] + 8);
        Wgmma<kHigh>::await(partial);
        promote<kHigh>(sum + kLow / 2, partial, high);
      } else {
        Codec::decode(raw, tables, a[1 - b] + 8);
      }
    }
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(empty);
  } while (--k > 0);
}

template <class TileShape>
struct Fp8Products {
  using Codec = E5m2Codec;
  using Tiles = TileShape;
  static constexpr bool kScaled = true;
  static constexpr int kArrivals = 1;  // one a piece

  // `a` is rounded over 128 channels, which a piece has and a warpgroup has not: the groups stage their parts side by
  // side, and whichever comes last rounds and writes all of them, so that nobody waits.
  struct Extra {
    int staged;     // groups whose part is there
    uint64_t left;  // the staged rows have been read
  };

  template <class S>
  static __device__ __forceinline__ void prepare(S& s) {
    s.extra.staged = 0;
    mbarrier_init(&s.extra.left, 1);
  }

  // 64 channels in each of two buffers.
  template <class S>
  static __device__ __forceinline__ uint8_t* staging(S& s, int group) {
    return s.results[group * 2 / Tiles::kGroups];
  }
  static __device__ __forceinline__ int first_chunk(int group) { return Tiles::kGroups == 4 ? (group & 1) * 4 : 0; }

  template <class S>
  static __device__ __forceinline__ void await_staging(S& s, const Work& work) {
    mbarrier_wait(&s.extra.left, (work.first_products - 1) & 1);
  }

  template <class S>
  static __device__ __forceinline__ void hand_over(S& s, const Work& work, const GroupedArgs& args, int group,
                                                   int thread, int n) {
    const int barrier = 1 + group;
    named_barrier(barrier, 128);
    bool last = false;
    if (thread == 0) {
      __threadfence_block();
      last = atomicAdd(&s.extra.staged, 1) == Tiles::kGroups - 1;
      __threadfence_block();
    }
    if (!named_barrier_any(barrier, 128, last)) return;
    const int unit = thread % 16;
    const Fp8Tile tile{work.row0, work.n, args.width / 128};
    const uint8_t* half = s.results[unit & 1];
    const int chunk = unit >> 2, byte = ((unit >> 1) & 1) * 8;  // unit_column()
    auto* codes = static_cast<uint8_t*>(args.activated);
#pragma unroll 2
    for (int i = thread / 16; i < n; i += 8) {
      const uint8_t* row = half + i * 128 + byte;
      float scale;
      const uint2 eight = round_unit(*reinterpret_cast<const uint2*>(row + ((chunk ^ (i & 7)) << 4)),
                                     *reinterpret_cast<const uint2*>(row + (((chunk + 4) ^ (i & 7)) << 4)), scale);
      *reinterpret_cast<uint2*>(codes + unit_at(tile, work.band, i, unit)) = eight;
      if (unit == 0) args.activated_scale[tile.scale(work.band, i)] = scale;
    }
    fence_async_global();  // the copy engine will read them
    named_barrier(barrier, 128);
    if (thread == 0) {
      s.extra.staged = 0;
      mbarrier_arrive(&s.extra.left);
      __threadfence();
      add_release(&args.plan.done[work.tile], 1);
    }
  }

  template <int N, class S>
  static __device__ __forceinline__ void run(S& s, typename S::Ring& ring, const Work& work, const GroupedArgs& args,
                                             int group, int thread) {
    constexpr int kBlocks = 4 / Tiles::kGroups;
    // Or ptxas reads it anew from its special register in every stage, at 20 cycles.
    if constexpr (kBlocks == 2) thread = __shfl_sync(0xffffffffu, thread, thread % 32);
    const int k_tiles = (work.product == 0 ? args.d : args.width) / Codec::kTileK;
    const int scale_run = (thread & 3) * Fp8Tile{0, work.n, 0}.run();  // where this lane's run of scales begins
    float sum[kBlocks][N / 2];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int i = 0; i < N / 2; ++i) sum[b][i] = 0;
    if constexpr (kBlocks == 2) {
      main_loop_two_blocks<N>(s, ring, k_tiles, 2 * group, thread, scale_run, sum[0], sum[1]);
      finish_two_blocks<Fp8Products, N>(s, work, args, opaque(group), opaque(thread), sum[0], sum[1]);
    } else {
      main_loop_one_block<N>(s, ring, k_tiles, group, thread, scale_run, sum[0]);
      finish_one_block<Fp8Products, N>(s, work, args, opaque(group), opaque(thread), sum[0]);
    }
  }
};

}  // namespace hadal::cuda
