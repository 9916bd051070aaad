// Hyper-connections and the tap: which kernel takes which shape.
#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/fp8_rows.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/linear_input.h"
#include "ops/hyper_connection/general.h"
#include "ops/hyper_connection/streams.h"

namespace hadal::cuda {
namespace {

// A thread makes eight channels of a row.
__global__ void __launch_bounds__(256) tap_kernel(const uint16_t* h, const int32_t* source, int64_t count, int copies,
                                                  int d, uint16_t* out, int64_t stride, int column) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int units = d / 8, unit = static_cast<int>(i % units);
  const int64_t row = i / units, s = source != nullptr ? source[row] : row;
  const auto* from = reinterpret_cast<const uint4*>(h + s * copies * d) + unit;
  float sum[8] = {};
#pragma unroll 4
  for (int j = 0; j < copies; ++j) {
    const uint4 v = from[int64_t{j} * units];
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sum[2 * e] += __uint_as_float(words[e] << 16);
      sum[2 * e + 1] += __uint_as_float(words[e] & 0xffff0000u);
    }
  }
  uint32_t packed[4];
#pragma unroll
  for (int e = 0; e < 4; ++e)
    packed[e] = pack_bf16x2(sum[2 * e] / static_cast<float>(copies), sum[2 * e + 1] / static_cast<float>(copies));
  *reinterpret_cast<uint4*>(out + row * stride + column + 8 * unit) =
      make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

}  // namespace

void hyper_connection(Context& context, const HyperConnectionArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.in.h.cols == int64_t{args.copies} * args.d);
  HADAL_CUDA_CHECK(!args.y || (args.in.post && args.in.comb));
  HADAL_CUDA_CHECK((args.norm == nullptr && !args.collapsed) || args.in.pre);
  HADAL_CUDA_CHECK(args.mix == nullptr || (args.out.pre && args.out.post && args.out.comb));
  HADAL_CUDA_CHECK(args.norm == nullptr || args.x || args.x_rounded);
  const bool streams = !cuda.portable() && streams_take(cuda, args);
  if (!args.x_rounded || (streams && streams_round(args)))
    return (streams ? hyper_connection_streams : hyper_connection_general)(cuda, args);
  Scratch scratch(cuda);
  HyperConnectionArgs apart = args;
  apart.x_rounded = {};
  if (!apart.x) apart.x = cuda.activations(args.rows, args.d);
  hyper_connection(context, apart);
  quantise_rows(cuda, apart.x.bf16(), args.d, nullptr, fp8_rows(args.x_rounded));
}

void tap(Context& context, const TapArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.h.cols == int64_t{args.copies} * args.d && args.column + args.d <= args.out.cols);
  HADAL_CUDA_CHECK(args.d % 8 == 0 && args.column % 8 == 0 && args.out.cols % 8 == 0);
  const int64_t count = int64_t{args.rows} * (args.d / 8);
  tap_kernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, cuda.stream()>>>(
      args.h.bf16(), args.source, count, args.copies, args.d, args.out.bf16(), args.out.cols, args.column);
  HADAL_CUDA_LAUNCHED("tap");
}

}  // namespace hadal::cuda
