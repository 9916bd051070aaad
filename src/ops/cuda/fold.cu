#include "ops/cuda/codec.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/fold.h"

namespace hadal::cuda {
namespace {

// A CTA folds 32 rows of 128 columns.
__global__ void __launch_bounds__(128) fold_kernel(uint8_t* codes, uint8_t* scales, int n, int k) {
  const int blocks = (k + 31) / 32, first = blockIdx.x * 4, count = min(4, blocks - first);
  uint8_t* scale = scales + int64_t{blockIdx.y} * blocks + first;
  int largest = 0;
  for (int i = 0; i < count; ++i) largest = max(largest, static_cast<int>(scale[i]));
  const int column = first * 32 + threadIdx.x;
  const int down = threadIdx.x / 32 < count ? largest - scale[threadIdx.x / 32] : 0;
  __syncthreads();
  if (threadIdx.x < count) scale[threadIdx.x] = static_cast<uint8_t>(largest);
  if (column >= k || down == 0) return;
  for (int row = blockIdx.y * 32; row < min(n, static_cast<int>(blockIdx.y) * 32 + 32); ++row) {
    uint8_t& code = codes[int64_t{row} * k + column];
    // E4M3 spans 2^18: further down nothing but the sign is left.
    code = to_e4m3(from_e4m3(code) * from_ue8m0(static_cast<uint8_t>(127 - min(down, 100))));
  }
}

}  // namespace

void fold_weight(CudaContext& context, const Weight& w) {
  HADAL_CUDA_CHECK(w.format == WeightFormat::fp8_block32);
  const dim3 grid(static_cast<unsigned>((w.k + 127) / 128), static_cast<unsigned>((w.n + 31) / 32));
  fold_kernel<<<grid, 128, 0, context.stream()>>>(static_cast<uint8_t*>(const_cast<void*>(w.data)),
                                                  const_cast<uint8_t*>(w.scale), w.n, w.k);
  HADAL_CUDA_LAUNCHED("fold");
}

}  // namespace hadal::cuda
