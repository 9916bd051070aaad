#include "ops/cuda/rotate.h"

#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/rotate.cuh"

namespace hadal::cuda {
namespace {

constexpr int kFewestRows = 256;

// One CTA a row, four pairs a thread.
__global__ void __launch_bounds__(256)
    rotate_queries_kernel(uint16_t* q, int heads, int head_dim, const float2* angles, int pairs) {
  wait_for_previous();
  let_next_start();
  const int64_t row = blockIdx.x;
  const int chunks = pairs / 4;
  for (int i = threadIdx.x; i < heads * chunks; i += blockDim.x) {
    auto* at = reinterpret_cast<uint4*>(q + (row * heads + i / chunks + 1) * head_dim - 2 * pairs) + i % chunks;
    *at = rotate_pairs(*at, angles + row * pairs + 4 * (i % chunks));
  }
}

}  // namespace

Tensor query_angles(Context& context, int rows, const Rope& rope) {
  if (rows < kFewestRows || rope.dim % 8 != 0 || CudaContext::of(context).portable()) return {};
  return context.tensor(rows, rope.dim, DType::f32);
}

void rotate_queries(CudaContext& context, const Tensor& q, int heads, int head_dim, const Tensor& angles) {
  HADAL_CUDA_CHECK(angles.type == DType::f32 && angles.cols % 8 == 0 && angles.cols <= head_dim);
  launch("rotate_queries", rotate_queries_kernel,
         {.grid = dim3(static_cast<unsigned>(q.rows)), .block = dim3(256), .stream = context.stream(), .early = true},
         q.bf16(), heads, head_dim, reinterpret_cast<const float2*>(angles.f32()), static_cast<int>(angles.cols) / 2);
}

}  // namespace hadal::cuda
