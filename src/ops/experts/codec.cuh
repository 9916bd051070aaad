// How packed expert weights lie in memory and how a warpgroup turns them into matrix operands. There is a layout for 16-bit
// rows and one for FP8 rows; which one is packed follows the numeric mode.
//
// A packed matrix is cut into tiles of 256 rows x kTileK columns, tile (m, k) at (m * (K / kTileK) + k) * kTileBytes, so that
// one row band streams contiguously. A tile is four blocks of 64 rows, each in the register order of the matrix instruction:
// thread t of a warpgroup finds its weights of a block in 16-byte loads. Then the scales. After all tiles comes one float a
// row, in tile order: a row's largest scale is taken out of its weights and applied to the fp32 sum instead, so that every
// scale byte from 0 to 254 works.
#pragma once

#include <cstdint>

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

inline constexpr int kTileM = 256;

// For bf16 rows. Decoding is exact: the code's exponent and mantissa bits are moved to the low end of a bf16's exponent and
// the top of its mantissa; read as bf16 (subnormal codes become subnormal bf16) that is the value times a fixed power of
// two, and one multiplication by a power of two puts it right.
// A 16-bit half holds one weight of each of the four A registers, where three of them need one shift to get to
// sign 15, code 8..6:   register 0: 15, 8..6    1: 12, 5..3    2: 9, 2..0    3: 14, 13 11 10
// 11 integer instructions and 4 multiplications decode 8 weights.
// Scales: for block b, warp w, row pair g: {row g, row g+8} of the first 32 columns, {row g, row g+8} of the last 32.
struct Mxfp4Codec {
  static constexpr int kTileK = 64;
  static constexpr int kBlockBytes = 2048;  // 64 rows x 64 columns
  static constexpr int kTileBytes = 4 * kBlockBytes + 512;
  static constexpr int kExponent = 253;  // bf16 exponent field of 2^126: from the bit position to the value

  struct Raw {
    uint4 codes;
    uint32_t scales;
  };

  static __device__ __forceinline__ Raw load(const uint8_t* tile, int block, int thread) {
    Raw raw;
    raw.codes = *reinterpret_cast<const uint4*>(tile + block * kBlockBytes + thread * 16);
    raw.scales = *reinterpret_cast<const uint32_t*>(tile + 4 * kBlockBytes + block * 128 + (thread >> 2) * 4);
    return raw;
  }

  static __device__ __forceinline__ void word(uint32_t w, uint32_t scale_low, uint32_t scale_high, uint32_t* a) {
    constexpr uint32_t kMask = 0x81c081c0u;
    a[0] = multiply_bf16x2(w & kMask, scale_low);
    a[1] = multiply_bf16x2((w << 3) & kMask, scale_high);
    a[2] = multiply_bf16x2((w << 6) & kMask, scale_low);
    a[3] = multiply_bf16x2(((w << 1) & 0x80008000u) | ((w >> 4) & 0x00c000c0u) | ((w >> 5) & 0x01000100u), scale_high);
  }

  // The A operands of the four k16 steps.
  static __device__ __forceinline__ void decode(const Raw& raw, uint32_t (&a)[16]) {
    uint32_t scale[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) scale[i] = __byte_perm(raw.scales, 0, 0x4040 | i | (i << 8)) << 7;
    word(raw.codes.x, scale[0], scale[1], a);
    word(raw.codes.y, scale[0], scale[1], a + 4);
    word(raw.codes.z, scale[2], scale[3], a + 8);
    word(raw.codes.w, scale[2], scale[3], a + 12);
  }
};

// For FP8 rows: weights become E5M2 with the scale of their block of 32 in the exponent, relative to the row's largest. E5M2
// has the mantissa of E2M1 and 27 binades to spare, so that is exact; a block whose scale is less than 2^-26 of its row's
// largest is packed as zeros.
//
// A word holds 8 weights of a row: magnitudes in bits 2..0 of every nibble, so that four of them select bytes of a table of the
// eight values (prmt), signs in bit 3: of weights 0..3 at 7, 15, 23, 31, of weights 4..7 at 3, 11, 19, 27. 7 instructions
// decode 8 weights, 6 make the tables of two rows.
//
// Which 32 values of k meet in one instruction is free, as long as both operands agree. Lane l of a quad owns block l of the 32-wide
// blocks of 128 columns, so that it needs one table a row: its weight i of step s is column 32 l + 8 s + i. Rows store their codes in
// that order (expert_rows.cuh).
struct E5m2Codec {
  static constexpr int kTileK = 128;
  static constexpr int kBlockBytes =
      4096;  // 64 rows x 128 columns: [half][thread]{row g, row g+8}{step 2 half, 2 half + 1}
  static constexpr int kExponentBytes = 256;  // of a block
  static constexpr int kTileBytes = 4 * (kBlockBytes + kExponentBytes);
  static constexpr int kLargest =
      27;  // exponent field of 0.5 in a block with the row's largest scale: 6 then is 1.5 * 2^15
  static constexpr int kRowExponent = 140;  // a row's sum is multiplied with 2^(largest scale byte - 140)

  // Values of rows g and g + 8 under this lane's block scale: bytes {0, .5, 1, 1.5} and {2, 3, 4, 6}.
  struct Tables {
    uint32_t low[2], high[2];
  };
  // Exponents of the two rows, and their tables. `tile` has all blocks of a tile, or `blocks` of them and then their exponents.
  static __device__ __forceinline__ uint32_t load_exponents(const uint8_t* tile, int block, int thread,
                                                            int blocks = 4) {
    return *reinterpret_cast<const uint16_t*>(tile + blocks * kBlockBytes + block * kExponentBytes + thread * 2);
  }
  static __device__ __forceinline__ Tables tables(uint32_t exponents) {
    const uint32_t exponent[2] = {exponents & 0xff, exponents >> 8};
    Tables t;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      t.low[i] = exponent[i] * 0x01010100u + 0x06040000u;
      t.high[i] = exponent[i] * 0x01010101u + 0x0e0c0a08u;
    }
    return t;
  }

  static __device__ __forceinline__ uint4 load(const uint8_t* tile, int block, int half, int thread) {
    return *reinterpret_cast<const uint4*>(tile + block * kBlockBytes + half * 2048 + thread * 16);
  }

  // __byte_perm would mask its selector once more.
  static __device__ __forceinline__ uint32_t pick(uint32_t low, uint32_t high, uint32_t codes) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(codes));
    return bytes;
  }
  static __device__ __forceinline__ void word(uint32_t w, uint32_t low, uint32_t high, uint32_t& first,
                                              uint32_t& second) {
    const uint32_t codes = w & 0x77777777u;
    first = pick(low, high, codes) | (w & 0x80808080u);
    second = pick(low, high, codes >> 16) | ((w << 4) & 0x80808080u);
  }

  // The A operands of two k32 steps.
  static __device__ __forceinline__ void decode(const uint4& raw, const Tables& t, uint32_t* a) {
    word(raw.x, t.low[0], t.high[0], a[0], a[2]);
    word(raw.y, t.low[0], t.high[0], a[4], a[6]);
    word(raw.z, t.low[1], t.high[1], a[1], a[3]);
    word(raw.w, t.low[1], t.high[1], a[5], a[7]);
  }
};

template <class Codec>
constexpr size_t packed_matrix_bytes(int m, int k) {
  return static_cast<size_t>(m / kTileM) * (k / Codec::kTileK) * Codec::kTileBytes +
         static_cast<size_t>(m) * sizeof(float);
}

}  // namespace hadal::cuda
