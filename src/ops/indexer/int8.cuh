// Index scores in 8-bit integers, exact: an E2M1 value is half an integer of at most 12, and a block's power of two
// becomes a shift as long as the four scales of a key (or of one head of a query) lie within 2^3 of each other: 12 << 3 = 96.
// The dot product of 128 channels is then below 2^21 and costs one int32. Keys and queries whose scales lie further apart
// go the careful way: four integer products, one a block, weighted in fp32 in ascending order. Where both ways apply they
// give the same bits, so it does not matter who goes which.
//
// The sum over heads, the same in every kernel: heads 8t .. 8t+7 ascending with fused multiply-adds for t = 0 .. 3, then
// (s0 + s1) + (s2 + s3).
#pragma once

#include "ops/cuda/codec.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/indexer/kernels.cuh"

namespace hadal::cuda {

inline constexpr int kWidestShift = 3;
// Scale bytes that the fast way takes: far from the ends of fp32's range.
inline constexpr int kLowestQueryScale = 127 - 24, kHighestQueryScale = 127 + 24;
inline constexpr int kLowestKeyScale = 127 - 30, kHighestKeyScale = 127 + 30;

// ---- queries ------------------------------------------------------------------------------------------------------------
// Codes of four rows together: [column of the product][128 bytes], 16-byte chunks swizzled by the column. Lane t of a quad
// gets columns 8j + 2t and the next, which are heads 2j and 2j + 1 of row t.
__device__ __forceinline__ int query_column(int row, int head) {
  return head / 2 * 8 + row % kInt8TileRows * 2 + head % 2;
}
// A product over 32 channels takes eight of each block of 32 that has a scale, lane t those of block t: one shift a lane.
// Step s has channels 32t + 8s + i; in the lower half of its 32 bytes those with i < 4.
__device__ __forceinline__ int64_t code_offset(int64_t row, int head, int channel) {
  const int column = query_column(static_cast<int>(row % kInt8TileRows), head);
  const int chunk = channel % 32 / 8 * 2 + channel % 8 / 4;
  return row / kInt8TileRows * kInt8TileBytes + column * kInt8Dim + ((chunk ^ (column & 7)) << 4) + channel / 32 * 4 +
         channel % 4;
}
// The four codes of lane t in chunk `chunk` (2 * step + half) of a head. tile: of the row.
__device__ __forceinline__ uint32_t query_word(const uint8_t* tile, int row, int head, int chunk, int t) {
  const int column = query_column(row, head);
  return *reinterpret_cast<const uint32_t*>(tile + column * kInt8Dim + ((chunk ^ (column & 7)) << 4) + 4 * t);
}

// ---- keys ---------------------------------------------------------------------------------------------------------------
// How the four scale bytes of a key are used.
struct KeyScales {
  uint32_t shift;  // a byte a block
  int base;        // the scale that remains; -1: the key goes the careful way, with its own scales and no shifts
};
// As if the key went the fast way; whether all of these do, says `all_fast`.
__device__ __forceinline__ KeyScales fast_key_scales(uint32_t scales) {
  const uint32_t two = __vminu2(scales & 0x00ff00ffu, scales >> 8 & 0x00ff00ffu);
  const int low = static_cast<int>(min(two & 0xffffu, two >> 16));
  return {scales - low * 0x01010101u, low};  // no byte borrows
}
__device__ __forceinline__ bool all_fast(const KeyScales& a, const KeyScales& b) {
  constexpr unsigned kRange = kHighestKeyScale - kLowestKeyScale;
  return ((a.shift | b.shift) & 0xfcfcfcfcu) == 0 && max(static_cast<unsigned>(a.base - kLowestKeyScale),
                                                         static_cast<unsigned>(b.base - kLowestKeyScale)) <= kRange;
}
__device__ __forceinline__ KeyScales key_scales(uint32_t scales) {
  const KeyScales key = fast_key_scales(scales);
  return all_fast(key, key) ? key : KeyScales{0, -1};
}

// Twice the eight magnitudes of E2M1 times 2^shift, and their negatives, a byte each.
struct Int8Values {
  uint32_t low, high, minus_low, minus_high;
};
__device__ __forceinline__ Int8Values int8_values(uint32_t shift) {
  const uint32_t low = 0x03020100u << shift, high = 0x0c080604u << shift;  // 0 1 2 3 4 6 8 12; no byte reaches 128
  const auto minus = [](uint32_t v) { return (0x80808080u - v) ^ 0x80808080u; };
  return {low, high, minus(low), minus(high)};
}
// Eight E2M1 codes, low nibble first, in two words of signed bytes.
__device__ __forceinline__ void codes_to_int8(uint32_t codes, const Int8Values& v, uint32_t& low, uint32_t& high) {
  // Selectors of four bits: a magnitude; and byte i of the magnitudes or of the negatives.
  const uint32_t magnitude = codes & 0x77777777u, side = ((codes >> 1) & 0x44444444u) | 0x32103210u;
  const auto four = [&](uint32_t m, uint32_t s) {
    return permute_bytes(permute_bytes(v.low, v.high, m), permute_bytes(v.minus_low, v.minus_high, m), s);
  };
  low = four(magnitude, side);
  high = four(magnitude >> 16, side >> 16);
}

// The same in two products: each word of codes becomes one of positive values and one of negative, and the products with both
// are added. A selector's highest bit asks for eight times the sign of the byte that it selects: 0 for what a negative code
// selects of the positive bytes, and -1 for what a positive code, its sign inverted, selects of the negative ones. So positive
// bytes are one too large, and 0 is 0 in both. Seven instructions for eight codes instead of eleven; `times` is 2^shift.
struct Int8Signed {
  uint32_t low, high, minus_low, minus_high;
};
__device__ __forceinline__ Int8Signed int8_signed(uint32_t times) {
  return {0x03020100u * times + 0x01010100u, 0x0c080604u * times + 0x01010101u, 0x01010000u - 0x03020100u * times,
          0x01010100u - 0x0c080604u * times};
}
__device__ __forceinline__ void codes_to_signed(uint32_t codes, const Int8Signed& v, uint32_t (&low)[2],
                                                uint32_t (&high)[2]) {
  const uint32_t upper = codes >> 16;
  low[0] = permute_bytes(v.low, v.high, codes);
  low[1] = permute_bytes(v.minus_low, v.minus_high, codes ^ 0x8888u);
  high[0] = permute_bytes(v.low, v.high, upper);
  high[1] = permute_bytes(v.minus_low, v.minus_high, upper ^ 0x8888u);
}

// d += A B for 16 keys x 8 columns x 32 channels; operands as in mma_bf16 with four bytes for two values.
__device__ __forceinline__ void mma_int8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- sums ---------------------------------------------------------------------------------------------------------------
// sum + w * relu(dot). The integer is read as the fp32 that it is the bits of: from 0 on the subnormal dot * 2^-149, below it
// a NaN, of which a saturated product makes 0. So one multiplication converts and cuts: relu(dot) * 2^-22, exactly.
// `official` rounds the dot product and the product to bf16.
template <bool Official>
__device__ __forceinline__ float add_head(float sum, float w, int dot) {
  if constexpr (Official) return sum + round_bf16(w * round_bf16(static_cast<float>(max(dot, 0))));
  float positive;
  asm("mul.sat.f32 %0, %1, 0f7F000000;" : "=f"(positive) : "f"(__int_as_float(dot)));  // 2^127
  return fmaf(w, positive, sum);
}
// What turns such a sum into a score: 2^(base - 127), values that are twice too large on both sides, and the 2^22.
template <bool Official>
__device__ __forceinline__ float score_factor(int base) {
  return __int_as_float((base - 2 + (Official ? 0 : 22)) << 23);
}

// Of four values a lane, value t of lane t summed over its quad, in the fixed order.
__device__ __forceinline__ float sum_quads(const float (&v)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, upper = (threadIdx.x & 2) != 0;
  const float first = (odd ? v[1] : v[0]) + __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1);
  const float second = (odd ? v[3] : v[2]) + __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
  return (upper ? second : first) + __shfl_xor_sync(0xffffffffu, upper ? first : second, 2);
}

inline constexpr int kInt8KeyBytes = kInt8Dim / 2 + kInt8Dim / 32;
// A key as lane t reads it: the codes of block t of 32 channels, eight a step, and all four scales.
struct PackedKey {
  uint32_t codes[4];
  uint32_t scales;
};
__device__ __forceinline__ PackedKey load_packed_key(const uint8_t* rows, uint32_t index, int t) {
  const uint8_t* row = rows + uint64_t{index} * kInt8KeyBytes;
  PackedKey key;
#pragma unroll
  for (int s = 0; s < 4; ++s) key.codes[s] = __ldg(reinterpret_cast<const uint32_t*>(row + 16 * t + 4 * s));
  key.scales = __ldg(reinterpret_cast<const uint32_t*>(row + 64));
  return key;
}

// The careful way for 16 keys and one row of a tile: this lane's share (eight heads) of the scores of keys g and g + 8.
template <bool Official>
__device__ __forceinline__ void careful_scores(const uint8_t* tile, int row, const float* weights,
                                               const uint32_t* relative, const PackedKey (&packed)[2],
                                               float (&score)[2]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const KeyScales key[2] = {key_scales(packed[0].scales), key_scales(packed[1].scales)};
  const Int8Values values[2] = {int8_values(key[0].shift >> 8 * t & 0xff), int8_values(key[1].shift >> 8 * t & 0xff)};
  float sum[2] = {};
#pragma unroll 1
  for (int j = 0; j < 4; ++j) {
    float dot[4] = {};
#pragma unroll 1
    for (int b = 0; b < 4; ++b) {  // block b alone: the other lanes multiply with zeros
      int d[4] = {};
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        uint32_t a[4];
        codes_to_int8(t == b ? packed[0].codes[s] : 0, values[0], a[0], a[2]);
        codes_to_int8(t == b ? packed[1].codes[s] : 0, values[1], a[1], a[3]);
        const int head = 8 * (g / 2) + 2 * j + g % 2;
        mma_int8(d, a[0], a[1], a[2], a[3], query_word(tile, row, head, 2 * s, t),
                 query_word(tile, row, head, 2 * s + 1, t));
      }
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int base =
            key[v / 2].base >= 0 ? key[v / 2].base : static_cast<int>(packed[v / 2].scales >> 8 * b & 0xff);
        const float of_key = from_ue8m0(static_cast<uint8_t>(base));
        const float of_query = from_ue8m0(static_cast<uint8_t>(relative[8 * t + 2 * j + v % 2] >> 8 * b & 0xff));
        dot[v] = fmaf(static_cast<float>(d[v]) * 0.25f * of_key, of_query, dot[v]);
      }
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const float w = weights[8 * t + 2 * j + v % 2], positive = fmaxf(dot[v], 0.0f);
      if constexpr (Official)
        sum[v / 2] += round_bf16(w * round_bf16(positive));
      else
        sum[v / 2] = fmaf(w, positive, sum[v / 2]);
    }
  }
  score[0] = sum[0];
  score[1] = sum[1];
}

}  // namespace hadal::cuda
