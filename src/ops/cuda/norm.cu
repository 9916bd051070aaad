#include "ops/cuda/norm.h"

#include "ops/cuda/errors.h"
#include "ops/cuda/fp8_rows.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

__global__ void __launch_bounds__(256)
    rms_norm_kernel(const uint16_t* x, int dim, const uint16_t* w, float eps, uint16_t* y) {
  __shared__ float shared[32];
  wait_for_previous();
  let_next_start();
  const int64_t row = int64_t{blockIdx.x} * dim;
  float sum = 0;
  for (int i = threadIdx.x; i < dim; i += blockDim.x) {
    const float v = from_bf16(x[row + i]);
    sum += v * v;
  }
  const float scale = inverse_rms(block_sum(sum, shared), dim, eps);
  for (int i = threadIdx.x; i < dim; i += blockDim.x)
    y[row + i] = to_bf16(from_bf16(w[i]) * (from_bf16(x[row + i]) * scale));
}

// The same, and Q4 of the result: eight channels a thread.
__global__ void rms_norm_fp8_kernel(const uint16_t* x, int dim, const uint16_t* w, float eps, uint16_t* y,
                                    Fp8Rows out) {
  __shared__ float shared[32];
  wait_for_previous();
  let_next_start();
  const int row = blockIdx.x;
  const int64_t at = int64_t{row} * dim + threadIdx.x * 8;
  float v[8], weight[8], sum = 0;
  unpack_bf16x8(*reinterpret_cast<const uint4*>(x + at), v);
  unpack_bf16x8(*reinterpret_cast<const uint4*>(w + threadIdx.x * 8), weight);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += v[i] * v[i];
  const float scale = inverse_rms(block_sum(sum, shared), dim, eps);
  uint32_t bits[4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint16_t b = to_bf16(weight[i] * (v[i] * scale));
    v[i] = from_bf16(b);
    bits[i / 2] = i % 2 == 0 ? b : bits[i / 2] | static_cast<uint32_t>(b) << 16;
  }
  *reinterpret_cast<uint4*>(y + at) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
  store_q4(out, threadIdx.x / 16, row, threadIdx.x % 16, v);
}

}  // namespace

void rms_norm_fp8(CudaContext& context, const uint16_t* x, int rows, int dim, const uint16_t* w, float eps, uint16_t* y,
                  const Fp8Rows& out) {
  if (rows == 0) return;
  HADAL_CUDA_CHECK(dim == out.columns && dim % 256 == 0 && dim <= 8192);
  launch("rms_norm_fp8", rms_norm_fp8_kernel,
         {.grid = dim3(rows), .block = dim3(dim / 8), .stream = context.stream(), .early = true}, x, dim, w, eps, y,
         out);
}

void rms_norm(CudaContext& context, const uint16_t* x, int rows, int dim, const uint16_t* w, float eps, uint16_t* y) {
  if (rows == 0) return;
  launch("rms_norm", rms_norm_kernel,
         {.grid = dim3(rows), .block = dim3(256), .stream = context.stream(), .early = true}, x, dim, w, eps, y);
}

}  // namespace hadal::cuda
