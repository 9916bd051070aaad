// Products of FP8 rows: E5M2 weights, the scale of their block in the exponent, and E4M3 codes meet in steps of 32. The matrix
// unit's sums of 8-bit products keep about 14 bits, so the sums over 128 values of k start at zero and are added to fp32 sums,
// multiplied with the scale that the row has for these 128 channels.
#pragma once

#include "ops/experts/fp8_rows.cuh"
#include "ops/experts/grouped_finish.cuh"

namespace hadal::cuda {

struct WideTiles8 {
  static constexpr int kMaxRows = kMaxTileRows8;
  static constexpr int kStages = 5;
  static constexpr int kGroups = 2;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  using Widths = WidthList<32, 64, 80, 88, 96, 104, 112, 120, 128>;
};
struct NarrowTiles8 {
  static constexpr int kMaxRows = kMaxNarrowTileRows;
  static constexpr int kStages = 7;
  static constexpr int kGroups = 4;
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 104;
  using Widths = WidthList<8, 16, 32, 64>;
};

template <class S>
__device__ __forceinline__ void await_stage(S& s, const typename S::Ring& ring) {
  mbarrier_wait(&s.full[ring.stage], ring.parity);
  fence_async_shared();  // token rows came by cp.async, the matrix unit reads them through the other proxy
}

// Two k32 steps.
template <int N>
__device__ __forceinline__ void multiply_half(float* partial, const uint32_t* a, uint64_t tokens, bool start) {
  wgmma_fence();
  Wgmma<N>::rs_e5m2(partial, a, tokens, start ? 0 : 1);
  Wgmma<N>::rs_e5m2(partial, a + 4, tokens + 2, 1);
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
template <int N, int Pending, bool Ahead>
__device__ __forceinline__ void await_and_add(float* sum, float* partial, const float* scale) {
  if constexpr (Ahead) {
    const Scales<N> scales(scale);
    Wgmma<N>::template await<Pending>(partial);
    promote<N>(sum, partial, scales);
  } else {
    Wgmma<N>::template await<Pending>(partial);
    promote<N>(sum, partial, Scales<N>(scale));
  }
}

template <class S>
__device__ __forceinline__ const float* stage_scale(S& s, int stage, int thread) {
  return s.token_scale[stage] + (thread & 3) * scale_run(S::Tiles::kMaxRows);
}

// One block of 64 weight rows a warpgroup. It is decoded in two halves of 64 values of k: the second while the products of the
// first run, the first of the next stage while the products of the second run.
template <int N, class S>
__device__ __forceinline__ void main_loop_one_block(S& s, typename S::Ring& ring, int k_tiles, int block, int thread,
                                                    float* sum) {
  using Codec = E5m2Codec;
  float partial[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) partial[i] = 0;
  uint32_t a[16];
  await_stage(s, ring);
  auto tables = Codec::tables(Codec::load_exponents(s.weights[ring.stage], block, thread));
  Codec::decode(Codec::load(s.weights[ring.stage], block, 0, thread), tables, a);
  int k = k_tiles;
  do {
    const uint64_t tokens = stage_tokens(s, ring.stage);
    const float* scale = stage_scale(s, ring.stage, thread);
    uint64_t* empty = &s.empty[ring.stage];
    const uint4 raw = Codec::load(s.weights[ring.stage], block, 1, thread);
    multiply_half<N>(partial, a, tokens, true);
    Codec::decode(raw, tables, a + 8);
    multiply_half<N>(partial, a + 8, tokens + 4, false);
    wgmma_wait<1>();  // the first half's operand registers are free
    ring.advance();
    if (--k > 0) {
      await_stage(s, ring);
      tables = Codec::tables(Codec::load_exponents(s.weights[ring.stage], block, thread));
      Codec::decode(Codec::load(s.weights[ring.stage], block, 0, thread), tables, a);
    }
    await_and_add<N, 0, (N < 64)>(sum, partial, scale);
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(empty);
  } while (k > 0);
}

// Two blocks of 64 weight rows a warpgroup. The tokens are multiplied in two parts with partial sums of their own, so that
// the sums of one are added up while the products of the other run. There is one set of operand registers: its first half
// (64 values of k) is decoded anew when the last products that use it are done and those of the second half run, and the
// other way round.
template <int N, class S>
__device__ __forceinline__ void main_loop_two_blocks(S& s, typename S::Ring& ring, int k_tiles, int block, int thread,
                                                     float* sum0, float* sum1) {
  using Codec = E5m2Codec;
  constexpr int kLow = (N / 16 + 1) / 2 * 16, kHigh = N - kLow;
  constexpr bool kAhead = N < 120;
  float low[kLow / 2], high[kHigh / 2];
#pragma unroll
  for (int i = 0; i < kLow / 2; ++i) low[i] = 0;
#pragma unroll
  for (int i = 0; i < kHigh / 2; ++i) high[i] = 0;
  Wgmma<N>::settle(sum0), Wgmma<N>::settle(sum1), Wgmma<kLow>::settle(low), Wgmma<kHigh>::settle(high);
  uint32_t a[16];
  Codec::Tables tables;
  uint32_t exponents;
  uint4 raw;
  const auto load_block = [&](const uint8_t* tile, int b) __attribute__((always_inline)) {
    exponents = Codec::load_exponents(tile, b, thread);
    raw = Codec::load(tile, b, 0, thread);
  };
  const auto decode_block = [&]() __attribute__((always_inline)) {
    tables = Codec::tables(exponents);
    Codec::decode(raw, tables, a);
  };
  const auto multiply_high = [&](uint64_t tokens) __attribute__((always_inline)) {
    multiply_half<kHigh>(high, a, tokens + kLow * 8, true);
    multiply_half<kHigh>(high, a + 8, tokens + kLow * 8 + 4, false);
  };

  await_stage(s, ring);
  load_block(s.weights[ring.stage], block);
  decode_block();
  int k = k_tiles;
  do {
    const uint8_t* tile = s.weights[ring.stage];
    const uint64_t tokens = stage_tokens(s, ring.stage);
    const float* scale = stage_scale(s, ring.stage, thread);
    uint64_t* empty = &s.empty[ring.stage];
    raw = Codec::load(tile, block, 1, thread);
    multiply_half<kLow>(low, a, tokens, true);
    Codec::decode(raw, tables, a + 8);
    multiply_half<kLow>(low, a + 8, tokens + 4, false);
    multiply_high(tokens);
    load_block(tile, block + 1);
    await_and_add<kLow, 2, kAhead>(sum0, low, scale);

    wgmma_wait<1>();
    decode_block();
    raw = Codec::load(tile, block + 1, 1, thread);
    multiply_half<kLow>(low, a, tokens, true);
    await_and_add<kHigh, 1, kAhead>(sum0 + kLow / 2, high, scale + kLow / 4);
    Codec::decode(raw, tables, a + 8);
    multiply_half<kLow>(low, a + 8, tokens + 4, false);
    multiply_high(tokens);
    ring.advance();
    if (--k > 0) {
      await_stage(s, ring);
      load_block(s.weights[ring.stage], block);
    }
    await_and_add<kLow, 2, kAhead>(sum1, low, scale);

    wgmma_wait<1>();
    if (k > 0) decode_block();
    // Nothing in flight over the loop's back edge: ptxas would serialise it (C7514).
    await_and_add<kHigh, 0, kAhead>(sum1 + kLow / 2, high, scale + kLow / 4);
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(empty);
  } while (k > 0);
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
    const int groups = args.width / 128, unit = thread % 16;
    const uint8_t* half = s.results[unit & 1];
    const int chunk = unit >> 2, byte = ((unit >> 1) & 1) * 8;  // unit_column()
    auto* codes = static_cast<uint8_t*>(args.activated) + static_cast<size_t>(work.row0) * args.width + work.band * 128;
    float* scales = args.activated_scale + static_cast<size_t>(work.row0) * scale_stride(groups) + work.band;
#pragma unroll 2
    for (int i = thread / 16; i < n; i += 8) {
      const uint8_t* row = half + i * 128 + byte;
      float scale;
      const uint2 eight = quantise_128(*reinterpret_cast<const uint2*>(row + ((chunk ^ (i & 7)) << 4)),
                                       *reinterpret_cast<const uint2*>(row + (((chunk + 4) ^ (i & 7)) << 4)), scale);
      *reinterpret_cast<uint2*>(codes + static_cast<size_t>(i) * args.width + unit * 8) = eight;
      if (unit == 0) scales[static_cast<size_t>(i) * scale_stride(groups)] = scale;
    }
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
    const int k_tiles = (work.product == 0 ? args.d : args.width) / Codec::kTileK;
    float sum[kBlocks][N / 2];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int i = 0; i < N / 2; ++i) sum[b][i] = 0;
    if constexpr (kBlocks == 2) {
      main_loop_two_blocks<N>(s, ring, k_tiles, 2 * group, thread, sum[0], sum[1]);
      finish_two_blocks<Fp8Products, N>(s, work, args, opaque(group), opaque(thread), sum[0], sum[1]);
    } else {
      main_loop_one_block<N>(s, ring, k_tiles, group, thread, sum[0]);
      finish_one_block<Fp8Products, N>(s, work, args, opaque(group), opaque(thread), sum[0]);
    }
  }
};

}  // namespace hadal::cuda
