// Products of bf16 rows: the weights' decoded values and the rows meet in steps of 16, in one fp32 sum over all of k.
#pragma once

#include "ops/experts/grouped_finish.cuh"

namespace hadal::cuda {

struct WideTiles {
  static constexpr int kMaxRows = kMaxTileRows, kResultRows = kMaxRows;
  static constexpr int kStages = 6;  // what shared memory holds
  static constexpr int kGroups = 2;  // consumer warpgroups, each with 4 / kGroups blocks of 64 weight rows
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
  using Widths = WidthList<32, 64, 96, 104, 112, 120, 128, 136, 144, 152>;
};
struct NarrowTiles {
  static constexpr int kMaxRows = kMaxNarrowTileRows, kResultRows = kMaxRows;
  static constexpr int kStages = 11;
  // Decoding is bound by the integer pipe (13 instructions a word at half rate: about 420 cycles a stage), which two
  // warps a scheduler do not keep busy.
  static constexpr int kGroups = 4;
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 104;
  using Widths = WidthList<8, 16, 32, 64>;
};

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
  const uint64_t tokens = stage_tokens(s, ring.stage);
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
    __syncwarp();  // all lanes have read their weights
    if (leader) mbarrier_arrive(empty_a);
    k -= 2;
    if (k > 0) decode_stage<Codec>(s, ring, block, thread, a);
    wgmma_wait<0>();
    __syncwarp();
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
    const uint64_t tokens = stage_tokens(s, ring.stage);
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
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(empty);
  } while (k > 0);
}

template <class TileShape>
struct Bf16Products {
  using Codec = Mxfp4Codec;
  using Tiles = TileShape;
  static constexpr bool kScaled = false;
  static __device__ __forceinline__ uint4 leaving(const GroupedArgs& args, uint4 v) {
    return args.round_activations ? round_fp8_32(v) : v;
  }

  template <int N, class S>
  static __device__ __forceinline__ void run(S& s, typename S::Ring& ring, const Work& work, const GroupedArgs& args,
                                             int group, int thread) {
    const int k_tiles = (work.product == 0 ? args.d : args.width) / Codec::kTileK;
    // Sums are cleared here rather than by the first instruction, so that they have one definition a piece.
    if constexpr (Tiles::kGroups == 2) {
      float sum0[N / 2], sum1[N / 2];
#pragma unroll
      for (int i = 0; i < N / 2; ++i) sum0[i] = sum1[i] = 0;
      main_loop_wide<Codec, N>(s, ring, k_tiles, group, thread, sum0, sum1);
      finish_two_blocks<Bf16Products, N>(s, work, args, opaque(group), opaque(thread), sum0, sum1);
    } else {
      float sum[N / 2];
#pragma unroll
      for (int i = 0; i < N / 2; ++i) sum[i] = 0;
      main_loop_narrow<Codec, N>(s, ring, k_tiles, group, thread, sum);
      finish_one_block<Bf16Products, N>(s, work, args, opaque(group), opaque(thread), sum);
    }
  }
};

}  // namespace hadal::cuda
