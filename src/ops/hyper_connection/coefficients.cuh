// The mixing coefficients of four copies, from the products of their rows.
#pragma once

#include "ops/cuda/row.cuh"

namespace hadal::cuda {

inline constexpr int kCopies = 4;
inline constexpr int kMixes = (2 + kCopies) * kCopies;  // 24: pre, post, comb; three tiles of 8
inline constexpr int kSent = kMixes + 1;                // mixing products and the sum of squares of h'

__device__ __forceinline__ float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));  // within one unit of the last place
  return r;
}

// The coefficients of `rows` rows from their products m, which are used up; a warp makes eight rows at a time, four lanes
// each. The Sinkhorn steps divide C by line sums + eps; C is kept as diag(u) C0 diag(v), so that a step of a lane is one
// sum and one reciprocal: u = u / (u s + eps) = 1 / (s + eps / u). This chain is what a decode step waits for: a lane for
// each row, without shuffles, took four times as long.
template <class Pass>
__device__ __forceinline__ void make_coefficients(const Pass& p, const float* base, const float* scale,
                                                  float (*m)[kSent], const int* row_of, int rows) {
  const int lane = threadIdx.x % 32, q = lane % kCopies;
  for (int first = 0; first < rows; first += 32 / kCopies) {
    const int local = first + lane / kCopies, r = min(local, rows - 1);  // past the end: the last row once more
    const float rms = inverse_rms(m[r][kMixes], kCopies * p.d, p.norm_eps);
    const float pre = m[r][q] * rms * scale[0] + base[q];
    const float post = m[r][kCopies + q] * rms * scale[1] + base[kCopies + q];
    float c[kCopies], column[kCopies];  // C0[q, k] and C0[j, q]
#pragma unroll
    for (int k = 0; k < kCopies; ++k) {
      const int i = (2 + q) * kCopies + k;
      c[k] = m[r][i] * rms * scale[2] + base[i];
    }
    const float top = fmaxf(fmaxf(c[0], c[1]), fmaxf(c[2], c[3]));
#pragma unroll
    for (int k = 0; k < kCopies; ++k) c[k] = expf(c[k] - top);
    const float share = 1.0f / (c[0] + c[1] + (c[2] + c[3]));
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kCopies; ++k) m[r][(2 + q) * kCopies + k] = c[k] = c[k] * share + p.hc_eps;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kCopies; ++j) column[j] = m[r][(2 + j) * kCopies + q];

    float u = 1.0f, v = 1.0f, u_inverse = 1.0f, v_inverse = 1.0f, all[kCopies];
#pragma unroll
    for (int j = 0; j < kCopies; ++j) all[j] = 1.0f;
      // The first iteration has the softmax in place of the row step.
#pragma unroll 1
    for (int iteration = 0; iteration < p.sinkhorn_iters; ++iteration) {
      if (iteration > 0) {
        u_inverse *= p.hc_eps;
#pragma unroll
        for (int k = 0; k < kCopies; ++k) u_inverse = fmaf(c[k], all[k], u_inverse);
        u = reciprocal(u_inverse);
#pragma unroll
        for (int j = 0; j < kCopies; ++j) all[j] = __shfl_sync(kFullWarp, u, j, kCopies);
      }
      v_inverse *= p.hc_eps;
#pragma unroll
      for (int j = 0; j < kCopies; ++j) v_inverse = fmaf(column[j], all[j], v_inverse);
      v = reciprocal(v_inverse);
#pragma unroll
      for (int k = 0; k < kCopies; ++k) all[k] = __shfl_sync(kFullWarp, v, k, kCopies);
    }
    if (local < rows) {
      const int64_t at = int64_t{row_of[r]} * kCopies + q;
      p.pre_out[at] = 1.0f / (1.0f + expf(-pre)) + p.hc_eps;
      p.post_out[at] = 2.0f * (1.0f / (1.0f + expf(-post)));
      reinterpret_cast<float4*>(p.comb_out)[at] =
          make_float4(u * c[0] * all[0], u * c[1] * all[1], u * c[2] * all[2], u * c[3] * all[3]);
    }
  }
}

}  // namespace hadal::cuda
