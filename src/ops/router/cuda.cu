#include "ops/cuda/errors.h"
#include "ops/cuda/linear.h"
#include "ops/router/logits.h"
#include "ops/router/router.h"

namespace hadal::cuda {
namespace {

constexpr int kMostTopk = 16, kMostExperts = 1536;

// Gates of other shapes: from logits of a linear.
__global__ void __launch_bounds__(128) general_kernel(const RouterSelect p, const float* logits) {
  constexpr int kPerLane = kMostExperts / 32;
  __shared__ float scores[4][kMostExperts];
  const int64_t row = int64_t{blockIdx.x} * 4 + threadIdx.x / 32;
  if (row >= p.rows) return;
  float logit[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = threadIdx.x % 32 + 32 * i;
    logit[i] = e < p.experts ? logits[row * p.experts + e] : 0.0f;
  }
  select_from_logits(p, row, logit, scores[threadIdx.x / 32]);
}

}  // namespace

void router(Context& context, const RouterArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  const int experts = args.gate.n;
  HADAL_CUDA_CHECK(args.topk <= experts && args.x.cols == args.gate.k);
  HADAL_CUDA_CHECK(args.image == nullptr || args.bias_vl != nullptr);
  if (args.topk > kMostTopk) fail_shape("router", "at most 16 experts a token", args.topk);
  if (experts > kMostExperts) fail_shape("router", "at most 1536 experts", experts);
  const RouterSelect select{args.rows,
                            experts,
                            args.topk,
                            args.gate_temp,
                            args.route_scale,
                            args.bias,
                            args.bias_vl,
                            args.image,
                            args.ids.i32(),
                            args.weights.f32(),
                            args.scores ? args.scores.f32() : nullptr};
  if (!cuda.portable() && args.gate.format == WeightFormat::bf16 && router_takes(experts, args.gate.k)) {
    const RouterLogits p{args.x.bf16(), static_cast<const uint16_t*>(args.gate.data), args.gate.k, select};
    return few_takes(cuda, select) ? route_few(cuda, p) : route_many(cuda, p);
  }
  Scratch scratch(cuda);
  const Tensor logits = cuda.tensor(args.rows, experts, DType::f32);
  linear(cuda, linear_args(args.x, args.gate, logits));
  general_kernel<<<(args.rows + 3) / 4, 128, 0, cuda.stream()>>>(select, logits.f32());
  HADAL_CUDA_LAUNCHED("router");
}

}  // namespace hadal::cuda
