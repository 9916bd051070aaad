#include "ops/cuda/norm.h"

#include "ops/cuda/errors.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

__global__ void __launch_bounds__(256)
    rms_norm_kernel(const uint16_t* x, int dim, const uint16_t* w, float eps, uint16_t* y) {
  __shared__ float shared[32];
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

}  // namespace

void rms_norm(CudaContext& context, const uint16_t* x, int rows, int dim, const uint16_t* w, float eps, uint16_t* y) {
  if (rows == 0) return;
  rms_norm_kernel<<<rows, 256, 0, context.stream()>>>(x, dim, w, eps, y);
  HADAL_CUDA_LAUNCHED("rms_norm");
}

}  // namespace hadal::cuda
