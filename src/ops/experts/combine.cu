// Sums the outputs of a row's experts.
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/experts/grouped.h"

namespace hadal::cuda {
namespace {

__device__ __forceinline__ void add8(float (&sum)[8], uint4 v) {
  const uint32_t u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] += __uint_as_float(u[i] << 16);
    sum[2 * i + 1] += __uint_as_float(u[i] & 0xffff0000u);
  }
}

// Eight channels a thread. The loads of a row's experts do not wait for each other.
template <int TopK>
__global__ void combine_kernel(const int* pair_row, const uint16_t* out, const uint16_t* shared_out, uint16_t* y,
                               int topk, int d) {
  const size_t row = blockIdx.x;
  const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
  wait_for_previous();
  let_next_start();
  if (channel >= d) return;
  float sum[8] = {};
  if constexpr (TopK > 0) {
    uint4 v[TopK];
#pragma unroll
    for (int k = 0; k < TopK; ++k) {
      const int from = pair_row[row * TopK + k];
      v[k] = from < 0 ? make_uint4(0, 0, 0, 0)
                      : __ldcs(reinterpret_cast<const uint4*>(out + static_cast<size_t>(from) * d + channel));
    }
#pragma unroll
    for (int k = 0; k < TopK; ++k) add8(sum, v[k]);
  } else {
    for (int k = 0; k < topk; ++k) {
      const int from = pair_row[row * topk + k];
      if (from >= 0) add8(sum, *reinterpret_cast<const uint4*>(out + static_cast<size_t>(from) * d + channel));
    }
  }
  if (shared_out) add8(sum, *reinterpret_cast<const uint4*>(shared_out + row * d + channel));
  *reinterpret_cast<uint4*>(y + row * d + channel) =
      make_uint4(pack_bf16x2(sum[0], sum[1]), pack_bf16x2(sum[2], sum[3]), pack_bf16x2(sum[4], sum[5]),
                 pack_bf16x2(sum[6], sum[7]));
}

}  // namespace

void combine_rows(const int* pair_row, const uint16_t* out, const uint16_t* shared_out, uint16_t* y, int rows, int topk,
                  int d, cudaStream_t stream) {
  if (rows == 0) return;
  const int threads = 128;
  const LaunchShape shape{
      .grid = dim3(rows, (d / 8 + threads - 1) / threads), .block = dim3(threads), .stream = stream, .early = true};
  launch("combine_kernel", topk == 6 ? combine_kernel<6> : combine_kernel<0>, shape, pair_row, out, shared_out, y, topk,
         d);
}

}  // namespace hadal::cuda
