#include "ops/cuda/errors.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/row.cuh"
#include "ops/engram/engram.h"

namespace hadal::cuda {
namespace {

// One warp a table row; a lane decodes four codes at a time.
__global__ void __launch_bounds__(256)
    engram_gather_kernel(const uint32_t* index, int64_t count, EngramTable table, uint16_t* out) {
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

// One CTA a (row, copy): three sums, the gate, and the gated value added to h.
__global__ void __launch_bounds__(256)
    engram_gate_kernel(const uint16_t* kv, int copies, int d, const uint16_t* q_weight, const uint16_t* k_weight,
                       float eps, const uint8_t* dead, uint16_t* h, float* gate_out) {
  __shared__ float shared[32];
  const int64_t row = blockIdx.x;
  const int copy = blockIdx.y;
  const uint16_t* key = kv + (row * (copies + 1) + copy) * d;
  const uint16_t* value = kv + (row * (copies + 1) + copies) * d;
  uint16_t* stream = h + (row * copies + copy) * d;
  const uint16_t* qw = q_weight + int64_t{copy} * d;
  const uint16_t* kw = k_weight + int64_t{copy} * d;
  float hh = 0, kk = 0, hk = 0;
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    const float a = from_bf16(stream[i]), b = from_bf16(key[i]);
    hh += a * a;
    kk += b * b;
    hk += a * (from_bf16(qw[i]) * from_bf16(kw[i])) * b;
  }
  hh = block_sum(hh, shared);
  kk = block_sum(kk, shared);
  hk = block_sum(hk, shared);
  const float dot = hk * (inverse_rms(hh, d, eps) * inverse_rms(kk, d, eps)) / sqrtf(static_cast<float>(d));
  float gate = 1.0f / (1.0f + expf(-copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot)));
  if (dead != nullptr && dead[row] != 0) gate = 0;
  if (gate_out != nullptr && threadIdx.x == 0) gate_out[row * copies + copy] = gate;
  for (int i = threadIdx.x; i < d; i += blockDim.x)
    stream[i] = to_bf16(from_bf16(stream[i]) + gate * from_bf16(value[i]));
}

}  // namespace

void engram_gather(Context& context, const EngramGatherArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int64_t count = int64_t{args.rows} * args.columns;
  if (count == 0) return;
  HADAL_CUDA_CHECK(args.table.dim % 32 == 0 && args.out.cols == int64_t{args.columns} * args.table.dim);
  engram_gather_kernel<<<static_cast<unsigned>((count + 7) / 8), 256, 0, cuda.stream()>>>(args.index, count, args.table,
                                                                                          args.out.bf16());
  HADAL_CUDA_LAUNCHED("engram_gather");
}

void engram_apply(Context& context, const EngramApplyArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.wkv.n == (args.copies + 1) * args.d && args.wkv.k == args.e.cols);
  Scratch scratch(cuda);
  const Tensor kv = cuda.activations(args.rows, args.wkv.n);
  linear(cuda, linear_args(args.e, args.wkv, kv));
  engram_gate_kernel<<<dim3(args.rows, args.copies), 256, 0, cuda.stream()>>>(
      kv.bf16(), args.copies, args.d, args.q_weight, args.k_weight, args.norm_eps, args.dead, args.h.bf16(),
      args.gate ? args.gate.f32() : nullptr);
  HADAL_CUDA_LAUNCHED("engram_gate");
}

}  // namespace hadal::cuda
