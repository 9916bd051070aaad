// Rotation of rows of results in bf16, from a table of angles.
#pragma once

#include "ops/cuda/hopper.cuh"
#include "ops/types.h"

namespace hadal::cuda {

// a c - b s for bf16 a and b, the products exact and their difference rounded once, in all but some 2^-36 of values: what the
// products and the difference lose is kept. (In double this takes conversions at a sixteenth of the rate.)
__device__ __forceinline__ float difference_of_products(float a, float c, float b, float s) {
  const float p = a * c, q = b * s, d = p - q, back = p - d;
  const float lost = (p - (d + back)) + (back - q);
  return d + (lost + (fmaf(a, c, -p) - fmaf(b, s, -q)));
}

// Four interleaved pairs.
__device__ __forceinline__ uint4 rotate_pairs(uint4 bits, const float2* angle) {
  uint32_t* word = &bits.x;
  const float4 angles[2] = {reinterpret_cast<const float4*>(angle)[0], reinterpret_cast<const float4*>(angle)[1]};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 two = angles[i / 2];
    const float c = i % 2 == 0 ? two.x : two.z, s = i % 2 == 0 ? two.y : two.w;
    const float re = __uint_as_float(word[i] << 16), im = __uint_as_float(word[i] & 0xffff0000u);
    word[i] = pack_bf16x2(difference_of_products(re, c, im, s), difference_of_products(re, s, im, -c));
  }
  return bits;
}

}  // namespace hadal::cuda
