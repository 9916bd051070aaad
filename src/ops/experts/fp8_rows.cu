#include "ops/experts/fp8_rows.cuh"

#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/experts/grouped.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 128;

// 16 lanes a group of 128 channels.
__global__ void __launch_bounds__(kThreads)
    quantise_kernel(const uint16_t* x, int groups, uint8_t* codes, float* scales) {
  wait_for_previous();
  let_next_start();
  const size_t row = blockIdx.x;
  const int unit = threadIdx.x % 16;
  // All lanes of a warp take part in the shuffles.
  for (int base = 0; base < groups; base += kThreads / 16) {
    const int group = base + threadIdx.x / 16;
    const size_t at = (row * groups + min(group, groups - 1)) * 128;
    const uint16_t* from = x + at + unit_column(unit);
    float scale;
    const uint2 eight =
        quantise_128(*reinterpret_cast<const uint2*>(from), *reinterpret_cast<const uint2*>(from + 32), scale);
    if (group >= groups) continue;
    *reinterpret_cast<uint2*>(codes + at + unit * 8) = eight;
    if (unit == 0) scales[row * scale_stride(groups) + group] = scale;
  }
}

}  // namespace

void quantise_rows(const uint16_t* x, int rows, int d, uint8_t* codes, float* scales, cudaStream_t stream) {
  if (rows == 0) return;
  if (d % 128 != 0) fail_shape("experts", "a multiple of 128 channels", d);
  launch("quantise_kernel", quantise_kernel,
         {.grid = dim3(rows), .block = dim3(kThreads), .stream = stream, .early = true}, x, d / 128, codes, scales);
}

}  // namespace hadal::cuda
