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
inline constexpr int kWeightExponent = 90;  // weights are stored times 2^90, for products with subnormals below

// ---- queries ------------------------------------------------------------------------------------------------------------
// Codes of a row: [column of the product][128 bytes], 16-byte chunks swizzled by the column. Lane t of a quad gets columns
// 8j + 2t and the next, which are heads 8t + 2j and the next.
__device__ __forceinline__ int column_of_head(int head) { return head % 8 / 2 * 8 + head / 8 * 2 + head % 2; }
// Within a block of 32, channel 8t + i goes where lane t reads its eight codes: bytes 4t .. 4t+3 of both halves.
__device__ __forceinline__ int code_offset(int column, int channel) {
  const int c = channel % 32, chunk = channel / 32 * 2 + c % 8 / 4;
  return column * kInt8Dim + ((chunk ^ (column & 7)) << 4) + c / 8 * 4 + c % 4;
}
// The four codes of lane t in chunk `chunk` (block * 2 + half) of a column.
__device__ __forceinline__ uint32_t query_word(const uint8_t* codes, int column, int chunk, int t) {
  return *reinterpret_cast<const uint32_t*>(codes + column * kInt8Dim + ((chunk ^ (column & 7)) << 4) + 4 * t);
}

// ---- keys ---------------------------------------------------------------------------------------------------------------
// How the four scale bytes of a key are used.
struct KeyScales {
  uint32_t shift;  // a byte a block
  int base;        // the scale that remains; -1: the key goes the careful way, with its own scales and no shifts
};
__device__ __forceinline__ KeyScales key_scales(uint32_t scales) {
  const int a = scales & 0xff, b = scales >> 8 & 0xff, c = scales >> 16 & 0xff, d = scales >> 24;
  const int low = min(min(a, b), min(c, d));
  const uint32_t shift = scales - low * 0x01010101u;  // no byte borrows
  const bool fast = (shift & 0xfcfcfcfcu) == 0 && low >= kLowestKeyScale && low <= kHighestKeyScale;
  return {fast ? shift : 0, fast ? low : -1};
}

// Eight E2M1 codes, low nibble first, as twice their values in two words of signed bytes, times 2^shift.
__device__ __forceinline__ void codes_to_int8(uint32_t codes, int shift, uint32_t& low, uint32_t& high) {
  const uint32_t magnitude = codes & 0x77777777u, side = ((codes >> 1) & 0x44444444u) | 0x32103210u;
  const auto four = [](uint32_t m, uint32_t s) {
    // 0 1 2 3 4 6 8 12 and their negatives; then byte by byte one or the other.
    return __byte_perm(__byte_perm(0x03020100u, 0x0c080604u, m), __byte_perm(0xfdfeff00u, 0xf4f8fafcu, m), s);
  };
  const uint32_t keep = 0x01010101u * (0xffu << shift & 0xffu);  // a shift inside each byte
  low = four(magnitude, side) << shift & keep;
  high = four(magnitude >> 16, side >> 16) << shift & keep;
}

// d += A B for 16 keys x 8 columns x 32 channels; operands as in mma_bf16 with four bytes for two values.
__device__ __forceinline__ void mma_int8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- sums ---------------------------------------------------------------------------------------------------------------
// sum + w * relu(dot). The integer is read as the subnormal fp32 that it is the bits of, dot * 2^-149: no conversion.
// `official` rounds the dot product and the product to bf16.
template <bool Official>
__device__ __forceinline__ float add_head(float sum, float w, int dot) {
  const int positive = max(dot, 0);
  if constexpr (Official) return sum + round_bf16(w * round_bf16(static_cast<float>(positive)));
  return fmaf(w, __int_as_float(positive), sum);
}
// What turns such a sum into a score: 2^(base - 127), values that are twice too large on both sides, and the weights' 2^90.
template <bool Official>
__device__ __forceinline__ float score_factor(int base) {
  return __int_as_float((base - 2 - kWeightExponent + (Official ? 0 : 149)) << 23);
}

// Of four values a lane, value t of lane t summed over its quad, in the fixed order.
__device__ __forceinline__ float sum_quads(const float (&v)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, upper = (threadIdx.x & 2) != 0;
  const float first = (odd ? v[1] : v[0]) + __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1);
  const float second = (odd ? v[3] : v[2]) + __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
  return (upper ? second : first) + __shfl_xor_sync(0xffffffffu, upper ? first : second, 2);
}

inline constexpr int kInt8KeyBytes = kInt8Dim / 2 + kInt8Dim / 32;
// A key as lane t reads it: eight codes of every block of 32 channels, and its four scales.
struct PackedKey {
  uint32_t codes[4];
  uint32_t scales;
};
__device__ __forceinline__ PackedKey load_packed_key(const uint8_t* rows, uint32_t index, int t) {
  const uint8_t* row = rows + uint64_t{index} * kInt8KeyBytes;
  PackedKey key;
#pragma unroll
  for (int b = 0; b < 4; ++b) key.codes[b] = __ldg(reinterpret_cast<const uint32_t*>(row + 16 * b + 4 * t));
  key.scales = __ldg(reinterpret_cast<const uint32_t*>(row + 64));
  return key;
}

// The careful way for 16 keys and one row: this lane's share (eight heads) of the scores of keys g and g + 8.
template <bool Official>
__device__ __forceinline__ void careful_scores(const uint8_t* codes, const float* weights, const uint32_t* relative,
                                               const PackedKey (&packed)[2], float (&score)[2]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const KeyScales key[2] = {key_scales(packed[0].scales), key_scales(packed[1].scales)};
  float sum[2] = {};
#pragma unroll 1
  for (int j = 0; j < 4; ++j) {
    float dot[4] = {};
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      uint32_t a[4];
      codes_to_int8(packed[0].codes[b], key[0].shift >> 8 * b & 0xff, a[0], a[2]);
      codes_to_int8(packed[1].codes[b], key[1].shift >> 8 * b & 0xff, a[1], a[3]);
      int d[4] = {};
      mma_int8(d, a[0], a[1], a[2], a[3], query_word(codes, 8 * j + g, 2 * b, t),
               query_word(codes, 8 * j + g, 2 * b + 1, t));
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
  score[0] = sum[0] * 0x1p-90f;
  score[1] = sum[1] * 0x1p-90f;
}

}  // namespace hadal::cuda
