// Packed latent rows -> bf16.
//
// All values are stored times 2^-8. An E4M3 code moved to the low end of a bf16's exponent needs a factor up to 2^126 times its
// group's scale; with 2^-8 that factor is one bf16 for every scale that occurs, so one multiplication decodes two values
// exactly. The softmax scale and the last division take the 2^8 back.
#pragma once

#include <cstdint>

#include "ops/cuda/hopper.cuh"

namespace hadal::cuda {

inline constexpr int kHeadDim = 512;
inline constexpr int kExpandedBytes = 2 * kHeadDim;
inline constexpr float kStoredScale = 0x1p-8f;
// In the top bit of the address of a packed row.
inline constexpr uint64_t kIsEntry = uint64_t{1} << 63;

// Four E4M3 codes, two bf16 pairs.
__device__ __forceinline__ void expand_e4m3(uint32_t codes, uint32_t factor, uint32_t& low, uint32_t& high) {
  const uint32_t a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424);  // codes in the upper bytes
  low = multiply_bf16x2((a & 0x80008000u) | ((a >> 4) & 0x07f007f0u), factor);
  high = multiply_bf16x2((b & 0x80008000u) | ((b >> 4) & 0x07f007f0u), factor);
}

// Eight E2M1 codes, low nibble first, four bf16 pairs: both bytes of a magnitude from tables of eight, the sign from one of
// two, by selectors of four bits.
__device__ __forceinline__ uint4 expand_e2m1(uint32_t codes, uint32_t factor) {
  const uint32_t magnitude = codes & 0x77777777u, sign = (codes >> 1) & 0x44444444u;
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t m = magnitude >> (16 * i), s = sign >> (16 * i);
    const uint32_t low = permute_bytes(0xc0800000u, 0xc0804000u, m);
    const uint32_t high = permute_bytes(0x3f3f3f00u, 0x40404040u, m) | permute_bytes(0, 0x80808080u, s);
    out[2 * i] = multiply_bf16x2(permute_bytes(low, high, 0x5140), factor);
    out[2 * i + 1] = multiply_bf16x2(permute_bytes(low, high, 0x7362), factor);
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// The bf16 pair of an E4M3 scale times 2^-8, for E2M1 values.
__device__ __forceinline__ uint32_t entry_factor(uint32_t code) {
  const uint32_t bits = (code & 0x7f) << 4;  // the scale times 2^-120
  return multiply_bf16x2(bits | bits << 16, 0x77807780u);
}

// The same of a window row's scale: 2^(120 - 8) times 2^(scale - 127).
__device__ __forceinline__ uint32_t window_factor(uint32_t scale) {
  const uint32_t field = min((scale & 0xff) + 112, 254u) << 7;
  return field | field << 16;
}

// 64 channels of an entry, from the scales of their four groups: put(chunk, values) for each eight of them in turn.
template <typename Put>
__device__ __forceinline__ void expand_entry(const uint4* codes, uint32_t scales, const Put& put) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t first = entry_factor(scales >> (16 * i)), second = entry_factor(scales >> (16 * i + 8));
    put(4 * i, expand_e2m1(codes[i].x, first));
    put(4 * i + 1, expand_e2m1(codes[i].y, first));
    put(4 * i + 2, expand_e2m1(codes[i].z, second));
    put(4 * i + 3, expand_e2m1(codes[i].w, second));
  }
}

// 16 channels of a window row, chunk and chunk + 1.
template <typename Put>
__device__ __forceinline__ void expand_window(const uint4& codes, uint32_t factor, int chunk, const Put& put) {
  uint4 v;
  expand_e4m3(codes.x, factor, v.x, v.y);
  expand_e4m3(codes.y, factor, v.z, v.w);
  put(chunk, v);
  expand_e4m3(codes.z, factor, v.x, v.y);
  expand_e4m3(codes.w, factor, v.z, v.w);
  put(chunk + 1, v);
}

// Channels 8 chunk .. 8 chunk + 7 of an entry or of a window row.
struct PackedChunk {
  uint32_t low, high;  // codes; of an entry, low alone
  uint32_t scale;
};
__device__ __forceinline__ PackedChunk load_chunk(const uint8_t* row, bool entry, int chunk) {
  const uint8_t* codes = row + (entry ? 4 : 8) * chunk;
  PackedChunk p;
  p.low = __ldg(reinterpret_cast<const uint32_t*>(codes));
  p.high = __ldg(reinterpret_cast<const uint32_t*>(codes + (entry ? 0 : 4)));
  p.scale = __ldg(row + (entry ? kHeadDim / 2 + chunk / 2 : kHeadDim + chunk / 4));
  return p;
}
__device__ __forceinline__ uint4 expand_chunk(const PackedChunk& p, bool entry) {
  if (entry) return expand_e2m1(p.low, entry_factor(p.scale));
  const uint32_t factor = window_factor(p.scale);
  uint4 v;
  expand_e4m3(p.low, factor, v.x, v.y);
  expand_e4m3(p.high, factor, v.z, v.w);
  return v;
}

}  // namespace hadal::cuda
