// Index queries as 8-bit integers, and head weights with the queries' scales in them.
#include <cmath>

#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/indexer/int8.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 4;

// One warp a (row, head): rotation, Q2, codes.
__global__ void __launch_bounds__(32 * kWarps)
    codes_kernel(const uint16_t* q, int64_t count, const int32_t* position, Rope rope, Int8Queries out, float* trace) {
  __shared__ float shared[kWarps][kInt8Dim];
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % 32;
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (i >= count) return;
  const int64_t row = i / kInt8Heads;
  const int head = static_cast<int>(i % kInt8Heads);
  float* v = shared[threadIdx.x / 32];
#pragma unroll
  for (int b = 0; b < 4; ++b) v[32 * b + lane] = from_bf16(q[i * kInt8Dim + 32 * b + lane]);
  __syncwarp();
  warp_rotate(v, kInt8Dim, rope, position[row]);
  uint8_t scale[4], code[4];
  int low = 255, high = 0;
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const float x = v[32 * b + lane];
    scale[b] = q2_scale(warp_max(fabsf(x)));
    code[b] = q2_code(x, scale[b]);
    low = min(low, static_cast<int>(scale[b]));
    high = max(high, static_cast<int>(scale[b]));
    if (trace != nullptr) trace[i * kInt8Dim + 32 * b + lane] = from_e2m1(code[b]) * from_ue8m0(scale[b]);
  }
  const bool fast = high - low <= kWidestShift && low >= kLowestQueryScale && low <= kHighestQueryScale;
  uint32_t relative = 0;
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const int value = static_cast<int>(2 * from_e2m1(code[b])) * (fast ? 1 << (scale[b] - low) : 1);
    out.codes[code_offset(row, head, 32 * b + lane)] = static_cast<uint8_t>(value);
    relative |= static_cast<uint32_t>(fast ? 127 : scale[b]) << (8 * b);
  }
  if (lane == 0) {
    out.relative[i] = relative;
    out.fold[i] = static_cast<uint8_t>(fast ? low : 127);
  }
}

// w = bf16( bf16(weights_proj x) * factor ), times the query's scale. One warp a row.
__global__ void __launch_bounds__(32 * kWarps)
    weights_kernel(const uint16_t* projected, int rows, double factor, Int8Queries out) {
  wait_for_previous();
  let_next_start();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const int64_t i = row * kInt8Heads + lane;
  const float w = round_bf16(static_cast<float>(from_bf16(projected[i]) * factor));
  out.weights[row * kWeightStride + lane] = w * __int_as_float(out.fold[i] << 23);
  const bool careful = __any_sync(kFullWarp, out.relative[i] != 0x7f7f7f7fu) != 0;
  if (lane == 0) out.weights[row * kWeightStride + kInt8Heads] = careful ? 1.0f : 0.0f;
}

}  // namespace

void launch_int8_queries(cudaStream_t stream, const uint16_t* q, const uint16_t* projected, int rows,
                         const int32_t* position, const Rope& rope, const Int8Queries& out, float* trace) {
  const int64_t count = int64_t{rows} * kInt8Heads;
  launch("index queries", codes_kernel,
         {.grid = dim3(static_cast<unsigned>((count + kWarps - 1) / kWarps)),
          .block = dim3(32 * kWarps),
          .stream = stream,
          .early = true},
         q, count, position, rope, out, trace);
  const double factor = 1 / std::sqrt(static_cast<double>(kInt8Dim) * kInt8Heads);
  launch("index head weights", weights_kernel,
         {.grid = dim3((rows + kWarps - 1) / kWarps), .block = dim3(32 * kWarps), .stream = stream, .early = true},
         projected, rows, factor, out);
}

}  // namespace hadal::cuda
