#include "ops/cuda/errors.h"
#include "ops/cuda/fp8_rows.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"

namespace hadal::cuda {
namespace {

constexpr int kPasses = 4;  // groups of a half warp, all loaded before the first is used

// A warp takes 8 groups of a row, two at a time.
__global__ void __launch_bounds__(256) quantise_kernel(const uint16_t* x, int64_t x_stride, const int32_t* x_row,
                                                       int warps, int warps_of_row, Fp8Rows out) {
  wait_for_previous();
  let_next_start();
  const int warp = blockIdx.x * 8 + threadIdx.x / 32, lane16 = threadIdx.x % 16;
  if (warp >= warps) return;
  const int row = warp / warps_of_row, groups = out.columns / 128;
  const int first = warp % warps_of_row * (2 * kPasses) + threadIdx.x / 16 % 2;
  const uint16_t* from = x + (x_row != nullptr ? x_row[row] : row) * x_stride + lane16 * 8;
  uint4 bits[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int group = min(first + 2 * i, groups - 1);
    bits[i] = *reinterpret_cast<const uint4*>(from + group * 128);
  }
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {  // past the end, the last group again: the same bytes
    float v[8];
    unpack_bf16x8(bits[i], v);
    store_q4(out, min(first + 2 * i, groups - 1), row, lane16, v);
  }
}

}  // namespace

void quantise_rows(CudaContext& context, const uint16_t* x, int64_t x_stride, const int32_t* x_row,
                   const Fp8Rows& out) {
  if (out.rows == 0) return;
  HADAL_CUDA_CHECK(x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0);
  const int warps_of_row = (out.columns / 128 + 2 * kPasses - 1) / (2 * kPasses), warps = out.rows * warps_of_row;
  launch("quantise_rows", quantise_kernel,
         {.grid = dim3((warps + 7) / 8), .block = dim3(256), .stream = context.stream(), .early = true}, x, x_stride,
         x_row, warps, warps_of_row, out);
}

}  // namespace hadal::cuda
