// A warp computes one output channel of one routing choice. Sums run in one order for every row: lanes stride over k,
// then a fixed tree.
#include "ops/cuda/codec.cuh"
#include "ops/cuda/errors.h"
#include "ops/experts/general.h"

namespace hadal::cuda {
namespace {

__device__ float weight_at(const Weight& w, int row, int column) {
  const size_t at = static_cast<size_t>(row) * w.k + column;
  const auto* bytes = static_cast<const uint8_t*>(w.data);
  switch (w.format) {
    case WeightFormat::f32: return static_cast<const float*>(w.data)[at];
    case WeightFormat::bf16: return from_bf16(static_cast<const uint16_t*>(w.data)[at]);
    case WeightFormat::fp8_block32:
      return from_e4m3(bytes[at]) *
             from_ue8m0(w.scale[static_cast<size_t>(row / 32) * ((w.k + 31) / 32) + column / 32]);
    case WeightFormat::mxfp4: {
      const uint8_t byte = bytes[static_cast<size_t>(row) * (w.k / 2) + column / 2];
      return from_e2m1((column & 1) != 0 ? byte >> 4 : byte & 15) *
             from_ue8m0(w.scale[static_cast<size_t>(row) * (w.k / 32) + column / 32]);
    }
  }
  return 0;
}

// W[row] . x, the same in every lane.
__device__ float warp_dot(const Weight& w, int row, const uint16_t* x) {
  float sum = 0;
  for (int c = threadIdx.x % 32; c < w.k; c += 32) sum = fmaf(weight_at(w, row, c), from_bf16(x[c]), sum);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

__device__ uint16_t activate(float gate, float up, float limit, float weight) {
  gate = fminf(round_bf16(gate), limit);
  up = fminf(fmaxf(round_bf16(up), -limit), limit);
  return to_bf16(weight * (__fdividef(gate, 1.0f + __expf(-gate)) * up));
}

__global__ void gate_up_kernel(GeneralExpertsArgs a) {
  const int choice = blockIdx.x, channel = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
  const FeedForward& expert = a.experts[a.ids[choice]];
  if (blockIdx.y == 0 && threadIdx.x == 0) a.choice_row[choice] = expert.w1.data ? choice : -1;
  if (!expert.w1.data || channel >= a.width) return;
  const uint16_t* x = a.x + static_cast<size_t>(choice / a.topk) * a.d;
  const float gate = warp_dot(expert.w1, channel, x), up = warp_dot(expert.w3, channel, x);
  if (threadIdx.x % 32 == 0)
    a.activated[static_cast<size_t>(choice) * a.width + channel] = activate(gate, up, a.limit, a.weights[choice]);
}

__global__ void down_kernel(GeneralExpertsArgs a) {
  const int choice = blockIdx.x, channel = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
  const FeedForward& expert = a.experts[a.ids[choice]];
  if (!expert.w2.data || channel >= a.d) return;
  const float sum = warp_dot(expert.w2, channel, a.activated + static_cast<size_t>(choice) * a.width);
  if (threadIdx.x % 32 == 0) a.out[static_cast<size_t>(choice) * a.d + channel] = to_bf16(sum);
}

__global__ void swiglu_kernel(const uint16_t* gate, const uint16_t* up, uint16_t* activated, int64_t count,
                              float limit) {
  const int64_t i = blockIdx.x * int64_t{256} + threadIdx.x;
  if (i < count) activated[i] = activate(from_bf16(gate[i]), from_bf16(up[i]), limit, 1.0f);
}

// One warp a group.
__global__ void round_kernel(const uint16_t* x, uint16_t* y, int64_t rows, int k, int group) {
  const int64_t warp = blockIdx.x * int64_t{8} + threadIdx.x / 32;
  const int groups = (k + group - 1) / group;
  if (warp >= rows * groups) return;
  const int begin = static_cast<int>(warp % groups) * group, first = begin + threadIdx.x % 32,
            last = min(begin + group, k);
  x += warp / groups * k, y += warp / groups * k;
  float largest = 0;
  for (int c = first; c < last; c += 32) largest = fmaxf(largest, fabsf(from_bf16(x[c])));
  for (int offset = 16; offset > 0; offset /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  const uint8_t scale = q1_scale(largest);
  for (int c = first; c < last; c += 32) y[c] = to_bf16(from_e4m3(q1_code(from_bf16(x[c]), scale)) * from_ue8m0(scale));
}

unsigned blocks(int64_t count) { return static_cast<unsigned>((count + 255) / 256); }

}  // namespace

int round_group(Numerics numerics, int k) {
  return numerics == Numerics::official ? 32 : numerics == Numerics::fp8 ? k : 0;
}

void general_experts(const GeneralExpertsArgs& a, cudaStream_t stream) {
  const int choices = a.rows * a.topk;
  gate_up_kernel<<<dim3(choices, (a.width + 7) / 8), 256, 0, stream>>>(a);
  HADAL_CUDA_LAUNCHED("gate_up_kernel");
  const int group = round_group(a.numerics, a.width);
  if (group != 0) round_inputs(a.activated, a.activated, choices, a.width, group, stream);
  down_kernel<<<dim3(choices, (a.d + 7) / 8), 256, 0, stream>>>(a);
  HADAL_CUDA_LAUNCHED("down_kernel");
}

void swiglu(const uint16_t* gate, const uint16_t* up, uint16_t* activated, int64_t count, float limit,
            cudaStream_t stream) {
  swiglu_kernel<<<blocks(count), 256, 0, stream>>>(gate, up, activated, count, limit);
  HADAL_CUDA_LAUNCHED("swiglu_kernel");
}

void round_inputs(const uint16_t* x, uint16_t* y, int64_t rows, int k, int group, cudaStream_t stream) {
  const auto blocks_of = [](int64_t warps) { return static_cast<unsigned>((warps + 7) / 8); };
  round_kernel<<<blocks_of(rows * ((k + group - 1) / group)), 256, 0, stream>>>(x, y, rows, k, group);
  HADAL_CUDA_LAUNCHED("round_kernel");
}

}  // namespace hadal::cuda
