// What operators do to one row held by one warp: norm, rotation, packing into a cache row. Rows live in shared memory as
// fp32; every rounding point of the specification is explicit.
#pragma once

#include "base/row_format.h"
#include "ops/cuda/codec.cuh"
#include "ops/types.h"

namespace hadal::cuda {

constexpr unsigned kFullWarp = 0xffffffffu;

__device__ __forceinline__ float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(kFullWarp, v, offset);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(kFullWarp, v, offset));
  return v;
}

// Eight bf16 values.
__device__ __forceinline__ void unpack8(const uint4& v, float (&out)[8]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// Sum over a block of up to 1024 threads, the same in every thread. `shared` holds 32 floats and is free for reuse
// after the next __syncthreads().
__device__ __forceinline__ float block_sum(float v, float* shared) {
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  return warp_sum(lane < static_cast<int>((blockDim.x + 31) / 32) ? shared[lane] : 0.0f);
}

// 1 / sqrt(mean + eps), from a sum of squares.
__device__ __forceinline__ float inverse_rms(float sum_of_squares, int n, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(n) + eps);
}

// row = bf16( w * (row * rms) ), one rounding.      spec 3.1
__device__ __forceinline__ void warp_norm(float* row, int dim, const uint16_t* w, float eps) {
  const int lane = threadIdx.x % 32;
  float sum = 0;
  for (int i = lane; i < dim; i += 32) sum += row[i] * row[i];
  const float scale = inverse_rms(warp_sum(sum), dim, eps);
  for (int i = lane; i < dim; i += 32) row[i] = round_bf16(from_bf16(w[i]) * (row[i] * scale));
  __syncwarp();
}

// cos and sin of fp32(position) * inv_freq: the angle in fp32, as published; the functions in double, then rounded.
__device__ __forceinline__ float2 rotation(const Rope& rope, int pair, int position) {
  const double angle = static_cast<double>(static_cast<float>(position) * rope.inv_freq[pair]);
  double s, c;
  sincos(angle, &s, &c);
  return make_float2(static_cast<float>(c), static_cast<float>(s));
}

// (re, im) times (c, s), each part rounded once to fp32 and then to bf16. The products are exact in double.
__device__ __forceinline__ void rotate_pair(float& re, float& im, float2 cs) {
  const double a = re, b = im, c = cs.x, s = cs.y;
  re = round_bf16(static_cast<float>(a * c - b * s));
  im = round_bf16(static_cast<float>(a * s + b * c));
}

// The last rope.dim channels of the row, as interleaved pairs.
__device__ __forceinline__ void warp_rotate(float* row, int dim, const Rope& rope, int position) {
  float* rotated = row + (dim - rope.dim);
  for (int i = threadIdx.x % 32; i < rope.dim / 2; i += 32)
    rotate_pair(rotated[2 * i], rotated[2 * i + 1], rotation(rope, i, position));
  __syncwarp();
}

// pack_row of base/row_format.h, one channel a lane. Also leaves the rounded values in `row`.
template <RowFormat F>
__device__ __forceinline__ void warp_pack(float* row, int dim, uint8_t* out) {
  const int lane = threadIdx.x % 32;
  for (int b = 0; b < dim / 32; ++b) {
    const float v = row[32 * b + lane];
    if constexpr (F == RowFormat::fp8_ue8m0_32) {
      const uint8_t scale = q1_scale(warp_max(fabsf(v)));
      const uint8_t code = q1_code(v, scale);
      if (out != nullptr) {
        out[32 * b + lane] = code;
        if (lane == 0) out[dim + b] = scale;
      }
      row[32 * b + lane] = from_e4m3(code) * from_ue8m0(scale);
    } else {
      constexpr int kBlock = F == RowFormat::fp4_ue8m0_32 ? 32 : 16;
      float a = fabsf(v);
      for (int offset = kBlock / 2; offset > 0; offset /= 2) a = fmaxf(a, __shfl_xor_sync(kFullWarp, a, offset));
      const uint8_t scale = kBlock == 32 ? q2_scale(a) : q3_scale(a);
      const uint8_t code = kBlock == 32 ? q2_code(v, scale) : q3_code(v, scale);
      const unsigned next = __shfl_down_sync(kFullWarp, static_cast<unsigned>(code), 1);
      if (out != nullptr) {
        if (lane % 2 == 0) out[16 * b + lane / 2] = static_cast<uint8_t>(code | (next << 4));
        if (lane % kBlock == 0) out[dim / 2 + b * (32 / kBlock) + lane / kBlock] = scale;
      }
      row[32 * b + lane] = from_e2m1(code) * (kBlock == 32 ? from_ue8m0(scale) : from_e4m3(scale));
    }
  }
  __syncwarp();
}

// Physical row of group g of a segment's request.
__device__ __forceinline__ int64_t physical_row(const Segments& segments, int segment, int page_rows, int64_t g) {
  const int32_t* pages = segments.page_table + int64_t{segment} * segments.page_stride;
  return static_cast<int64_t>(pages[g / page_rows]) * page_rows + g % page_rows;
}

}  // namespace hadal::cuda
