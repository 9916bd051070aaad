#include "ops/cuda/errors.h"
#include "ops/cuda/fp8_rows.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/linear_input.h"
#include "ops/cuda/row.cuh"
#include "ops/engram/engram.h"

namespace hadal::cuda {
namespace {

// One warp a table row; a lane decodes four codes at a time.
__global__ void __launch_bounds__(256)
    engram_gather_kernel(const uint32_t* index, int64_t count, EngramTable table, uint16_t* out) {
  wait_for_previous();
  let_next_start();
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (i >= count) return;
  const int64_t row = index[i];
  const auto* codes = reinterpret_cast<const uint32_t*>(table.codes + row * table.dim);
  const uint8_t* scales = table.scales + row * (table.dim / 32);
  for (int c = threadIdx.x % 32; c < table.dim / 4; c += 32) {
    const uint32_t four = codes[c];
    const float scale = from_ue8m0(scales[c / 8]);
    uint32_t packed[2];
    for (int j = 0; j < 2; ++j) {
      const float low = from_e4m3(static_cast<uint8_t>(four >> (16 * j))) * scale;
      const float high = from_e4m3(static_cast<uint8_t>(four >> (16 * j + 8))) * scale;
      packed[j] = to_bf16(low) | (static_cast<uint32_t>(to_bf16(high)) << 16);
    }
    *reinterpret_cast<uint2*>(out + i * table.dim + 4 * c) = make_uint2(packed[0], packed[1]);
  }
}

constexpr int kPasses = 4;  // groups of a half warp, all asked for before the first is used

// Two codes, the first in the low byte.
__device__ __forceinline__ float2 from_e4m3_pair(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
#else
  return {from_e4m3(static_cast<uint8_t>(codes)), from_e4m3(static_cast<uint8_t>(codes >> 8))};
#endif
}

// The rows as Q4, as the linear behind reads them: a warp takes 8 groups of 128 channels of a row, two at a time. A code
// times its scale is a bf16, so nothing is rounded in between.
__global__ void __launch_bounds__(256) engram_gather_fp8_kernel(const uint32_t* index, int columns, int warps,
                                                                int warps_of_row, EngramTable table, Fp8Rows out) {
  wait_for_previous();
  let_next_start();
  const int warp = blockIdx.x * 8 + threadIdx.x / 32, lane16 = threadIdx.x % 16;
  if (warp >= warps) return;
  const int row = warp / warps_of_row, groups = out.columns / 128;
  const int first = warp % warps_of_row * (2 * kPasses) + threadIdx.x / 16 % 2;
  uint2 codes[kPasses];
  uint8_t scales[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int channel = min(first + 2 * i, groups - 1) * 128 + lane16 * 8, column = channel / table.dim;
    const int64_t at = static_cast<int64_t>(index[int64_t{row} * columns + column]) * table.dim + channel % table.dim;
    codes[i] = *reinterpret_cast<const uint2*>(table.codes + at);
    scales[i] = table.scales[at / 32];
  }
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {  // past the end, the last group again: the same bytes
    const float scale = from_ue8m0(scales[i]);
    const uint32_t words[2] = {codes[i].x, codes[i].y};
    float v[8];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = from_e4m3_pair(words[j / 2] >> (16 * (j % 2)));
      v[2 * j] = pair.x * scale;
      v[2 * j + 1] = pair.y * scale;
    }
    store_q4(out, min(first + 2 * i, groups - 1), row, lane16, v);
  }
}

constexpr int kGateUnits = 2;  // of 8 channels, in the registers of a thread

// One CTA a copy of `rows_each` rows, whose weights it reads once, the copies of a row next to each other since they share
// its value: three sums, the gate, and the gated value added to h. Everything of a row is read once, and at once.
__global__ void __launch_bounds__(1024)
    engram_gate_kernel(const uint16_t* kv, int rows, int rows_each, int copies, int d, const uint16_t* q_weight,
                       const uint16_t* k_weight, float eps, const uint8_t* dead, uint16_t* h, float* gate_out) {
  __shared__ float shared[2][32][3];
  const int copy = blockIdx.x % copies, units = d / 8, threads = blockDim.x, lane = threadIdx.x % 32;
  const auto* q = reinterpret_cast<const uint4*>(q_weight + int64_t{copy} * d);
  const auto* k = reinterpret_cast<const uint4*>(k_weight + int64_t{copy} * d);
  float weights[kGateUnits][8] = {};
#pragma unroll
  for (int u = 0; u < kGateUnits; ++u) {
    const int i = threadIdx.x + u * threads;
    if (i >= units) continue;
    float v[8], w[8];
    unpack8(q[i], v);
    unpack8(k[i], w);
#pragma unroll
    for (int e = 0; e < 8; ++e) weights[u][e] = v[e] * w[e];
  }
  wait_for_previous();
  let_next_start();
  const int first = blockIdx.x / copies * rows_each, last = min(first + rows_each, rows);
  for (int row = first; row < last; ++row) {
    const auto* key = reinterpret_cast<const uint4*>(kv + (int64_t{row} * (copies + 1) + copy) * d);
    const auto* value = reinterpret_cast<const uint4*>(kv + (int64_t{row} * (copies + 1) + copies) * d);
    auto* stream = reinterpret_cast<uint4*>(h + (int64_t{row} * copies + copy) * d);
    uint4 in[kGateUnits] = {}, keys[kGateUnits] = {}, values[kGateUnits] = {};
#pragma unroll
    for (int u = 0; u < kGateUnits; ++u) {
      const int i = threadIdx.x + u * threads;
      if (i < units) in[u] = stream[i], keys[u] = key[i], values[u] = value[i];
    }
    float hh = 0, kk = 0, hk = 0;
#pragma unroll
    for (int u = 0; u < kGateUnits; ++u) {
      float a[8], b[8];
      unpack8(in[u], a);
      unpack8(keys[u], b);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        hh = fmaf(a[e], a[e], hh);
        kk = fmaf(b[e], b[e], kk);
        hk = fmaf(a[e] * weights[u][e], b[e], hk);
      }
    }
    hh = warp_sum(hh);
    kk = warp_sum(kk);
    hk = warp_sum(hk);
    float(&sums)[32][3] = shared[row % 2];  // the row before may still be read
    if (lane == 0) sums[threadIdx.x / 32][0] = hh, sums[threadIdx.x / 32][1] = kk, sums[threadIdx.x / 32][2] = hk;
    __syncthreads();
    const bool live = lane < threads / 32;
    hh = warp_sum(live ? sums[lane][0] : 0.0f);
    kk = warp_sum(live ? sums[lane][1] : 0.0f);
    hk = warp_sum(live ? sums[lane][2] : 0.0f);
    const float dot = hk * (inverse_rms(hh, d, eps) * inverse_rms(kk, d, eps)) / sqrtf(static_cast<float>(d));
    float gate = 1.0f / (1.0f + expf(-copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot)));
    if (dead != nullptr && dead[row] != 0) gate = 0;
    if (gate_out != nullptr && threadIdx.x == 0) gate_out[int64_t{row} * copies + copy] = gate;
#pragma unroll
    for (int u = 0; u < kGateUnits; ++u) {
      const int i = threadIdx.x + u * threads;
      if (i >= units) continue;
      float a[8], v[8];
      unpack8(in[u], a);
      unpack8(values[u], v);
      uint32_t out[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) out[e] = pack_bf16x2(a[2 * e] + gate * v[2 * e], a[2 * e + 1] + gate * v[2 * e + 1]);
      stream[i] = make_uint4(out[0], out[1], out[2], out[3]);
    }
  }
}

}  // namespace

void engram_gather(Context& context, const EngramGatherArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int64_t count = int64_t{args.rows} * args.columns;
  if (count == 0) return;
  HADAL_CUDA_CHECK(args.table.dim % 32 == 0 && args.out.cols == int64_t{args.columns} * args.table.dim);
  if (args.out.type == DType::u8) {
    const Fp8Rows out = fp8_rows(args.out);
    HADAL_CUDA_CHECK(out.rows == args.rows);
    const int warps_of_row = (out.columns / 128 + 2 * kPasses - 1) / (2 * kPasses), warps = out.rows * warps_of_row;
    return launch("engram_gather_fp8", engram_gather_fp8_kernel,
                  {.grid = dim3((warps + 7) / 8), .block = dim3(256), .stream = cuda.stream(), .early = true},
                  args.index, args.columns, warps, warps_of_row, args.table, out);
  }
  launch("engram_gather", engram_gather_kernel,
         {.grid = dim3(static_cast<unsigned>((count + 7) / 8)),
          .block = dim3(256),
          .stream = cuda.stream(),
          .early = true},
         args.index, count, args.table, args.out.bf16());
}

void engram_apply(Context& context, const EngramApplyArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.wkv.n == (args.copies + 1) * args.d && args.wkv.k == args.e.cols);
  Scratch scratch(cuda);
  const Tensor kv = cuda.activations(args.rows, args.wkv.n);
  LinearArgs product = linear_args(args.e, args.wkv, kv);
  if (args.e.type == DType::u8) product.x_fp8 = fp8_rows(args.e);
  linear(cuda, product);
  const int threads = (args.d / 8 + 32 * kGateUnits - 1) / (32 * kGateUnits) * 32;
  HADAL_CUDA_CHECK(args.d % 8 == 0);
  if (threads > 1024) fail_shape("engram_apply", "rows of at most 16384 channels", args.d);
  const int rows_each = args.rows >= 1024 ? 4 : 1;
  launch("engram_gate", engram_gate_kernel,
         {.grid = dim3(static_cast<unsigned>((args.rows + rows_each - 1) / rows_each * args.copies)),
          .block = dim3(threads),
          .stream = cuda.stream(),
          .early = true},
         kv.bf16(), args.rows, rows_each, args.copies, args.d, args.q_weight, args.k_weight, args.norm_eps, args.dead,
         args.h.bf16(), args.gate ? args.gate.f32() : nullptr);
}

}  // namespace hadal::cuda
