// Products of FP8 rows: E5M2 weights, the scale of their block in the exponent, and E4M3 codes meet in steps of 32. The
// matrix unit's sums of 8-bit products keep about 14 bits, so the sums over 256 values of k, two stages, start at zero
// and are added to fp32 sums. (Over 128 values the error is the same; without fp32 sums it is four times as large.)
#pragma once

#include "ops/experts/expert_rows.cuh"
#include "ops/experts/grouped_finish.cuh"

namespace hadal::cuda {

// The scale of a weight row is 2^-140 .. 2^114, that of a token 2^-22 .. 2^120, sums are 0 or 2^-23 .. 2^37. The result may
// be a number where a sum times one of the two scales is not, nor their product. So the row's is cut in two: 2^-44 in front of the
// token's, so that nothing leaves the range there, and the rest behind it; of rows above 2^83 that rest is 2^127, and what was too
// large before it is infinite anyway. A power of two changes no bit of a rounded sum, and of bf16 one instruction multiplies two.
template <>
class RowFactor<true> {
 public:
  __device__ explicit RowFactor(float scale) {
    const float before = fmaxf(0x1p-44f, scale * 0x1p-100f * 0x1p-27f);
    before_ = twice(before), after_ = twice(scale * reciprocal_of_power(before));
  }
  // `scales`: of the two tokens, bf16.
  __device__ uint32_t round(float first, float second, uint32_t scales) const {
    return multiply_bf16x2(multiply_bf16x2(multiply_bf16x2(pack_bf16x2(first, second), before_), scales), after_);
  }

 private:
  static __device__ uint32_t twice(float power) { return pack_bf16x2(power, power); }
  uint32_t before_, after_;
};

struct NarrowTiles8 {
  static constexpr int kMaxRows = kMaxNarrowTileRows, kResultRows = kMaxRows;
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

// Awaited products to the fp32 sums.
template <int N>
__device__ __forceinline__ void promote(float* sum, float* partial) {
  Wgmma<N>::await(partial);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) sum[i] += partial[i];
  Wgmma<N>::settle(sum);
}

// One block of 64 weight rows a warpgroup. It is decoded in two halves of 64 values of k: the second while the products
// of the first run, the first of the next stage while the products of the second run. tokens_of(stage, k tile): their descriptor.
template <int N, class S, class TokensOf>
__device__ __forceinline__ void main_loop_one_block(S& s, typename S::Ring& ring, int k_tiles, int block, int thread,
                                                    float* sum, const TokensOf& tokens_of) {
  using Codec = E5m2Codec;
  float partial[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) partial[i] = 0;
  uint32_t a[16];
  mbarrier_wait(&s.full[ring.stage], ring.parity);
  auto tables = Codec::tables(Codec::load_exponents(s.weights[ring.stage], block, thread));
  Codec::decode(Codec::load(s.weights[ring.stage], block, 0, thread), tables, a);
  int k = k_tiles;  // even: hidden size and width are multiples of 256
  do {
#pragma unroll
    for (int stage = 0; stage < 2; ++stage) {
      const uint64_t tokens = tokens_of(ring.stage, k_tiles - k);
      uint64_t* empty = &s.empty[ring.stage];
      const uint4 raw = Codec::load(s.weights[ring.stage], block, 1, thread);
      multiply_half<N>(partial, a, tokens, stage == 0);
      Codec::decode(raw, tables, a + 8);
      multiply_half<N>(partial, a + 8, tokens + 4, false);
      wgmma_wait<1>();  // the first half's operand registers are free
      ring.advance();
      if (--k > 0) {
        mbarrier_wait(&s.full[ring.stage], ring.parity);
        tables = Codec::tables(Codec::load_exponents(s.weights[ring.stage], block, thread));
        Codec::decode(Codec::load(s.weights[ring.stage], block, 0, thread), tables, a);
      }
      if (stage == 0)
        Wgmma<N>::await(partial);
      else
        promote<N>(sum, partial);
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(empty);
    }
  } while (k > 0);
}

// The input of the second product is rounded with one scale a row, of which a piece has a part: the warps that stream
// nothing do it, two a block, where all pieces of a tile are done. A warp takes every sixteenth row of a tile; tiles
// come in the order in which they are wanted.
__device__ __forceinline__ void round_tiles(const GroupedArgs& args, int warp, int lane) {
  const int items = *args.plan.tile_count * kRoundedParts, groups = args.width / 128;
  for (int item = blockIdx.x * 2 + warp; item < items; item += gridDim.x * 2) {
    const TokenTile tile = args.plan.tiles[item / kRoundedParts];
    const Fp8Tile where{tile.row0, tile.n, groups};
    if (lane == 0) await_activated(args, item / kRoundedParts, kTileM / 64);
    __syncwarp();
    for (int row = item % kRoundedParts; row < tile.n; row += kRoundedParts) {
      const uint16_t* x = args.activated + static_cast<size_t>(tile.row0 + row) * args.width;
      uint32_t largest = 0;
      for (int i = lane; i < groups * 16; i += 128) {
        uint4 v[4];  // at once: one row of decode steps is latency
#pragma unroll
        for (int j = 0; j < 4; ++j)
          v[j] = i + 32 * j < groups * 16 ? *reinterpret_cast<const uint4*>(x + 8 * (i + 32 * j)) : uint4{};
#pragma unroll
        for (int j = 0; j < 4; ++j) largest = larger(largest, v[j]);
      }
      const float scale = row_scale_of(warp_largest(largest)), inverse = reciprocal_of_power(scale);
      for (int i = lane; i < groups * 16; i += 32)
        *reinterpret_cast<uint2*>(args.activated_codes + unit_at(where, i / 16, row, i % 16)) =
            round_unit(x + i / 16 * 128 + unit_column(i % 16), inverse);
      if (lane == 0) args.activated_scale[tile.row0 + row] = bf16_of_power(scale);
    }
    fence_async_global();  // the copy engine will read them
    __syncwarp();
    if (lane == 0) { add_release(&args.plan.rounded[item / kRoundedParts], 1); }
  }
}

template <class TileShape>
struct Fp8Products {
  using Codec = E5m2Codec;
  using Tiles = TileShape;
  static constexpr bool kScaled = true;

  static __device__ __forceinline__ uint4 leaving(const GroupedArgs&, uint4 v) { return v; }

  static __device__ __forceinline__ void round_activated(const GroupedArgs& args, int warp, int lane) {
    round_tiles(args, warp, lane);
  }

  template <int N, class S>
  static __device__ __forceinline__ void run(S& s, typename S::Ring& ring, const Work& work, const GroupedArgs& args,
                                             int group, int thread) {
    const int k_tiles = (work.product == 0 ? args.d : args.width) / Codec::kTileK;
    float sum[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sum[i] = 0;
    main_loop_one_block<N>(s, ring, k_tiles, group, thread, sum,
                           [&](int stage, int) { return stage_tokens(s, stage); });
    finish_one_block<Fp8Products, N>(s, work, args, opaque(group), opaque(thread), sum);
  }
};

}  // namespace hadal::cuda
