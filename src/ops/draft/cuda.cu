#include "ops/cuda/errors.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/row.cuh"
#include "ops/draft/draft.h"

namespace hadal::cuda {
namespace {

// sigma( w . concat(hidden, embed[token]) ), one CTA a row.
__global__ void __launch_bounds__(256)
    confidence_kernel(const int32_t* tokens, const uint16_t* hidden, int d, const uint16_t* embed, int rank,
                      const uint16_t* w, float* probability) {
  __shared__ float shared[32];
  const int64_t row = blockIdx.x;
  const uint16_t* h = hidden + row * d;
  const uint16_t* e = embed + int64_t{tokens[row]} * rank;
  float sum = 0;
  for (int i = threadIdx.x; i < d + rank; i += blockDim.x) sum += from_bf16(w[i]) * from_bf16(i < d ? h[i] : e[i - d]);
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) probability[row] = 1.0f / (1.0f + expf(-sum));
}

}  // namespace

void draft_context(Context& context, const DraftContextArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  LinearArgs project = linear_args(args.main_hidden, args.main_proj, args.main_x);
  project.rows = args.rows;
  linear(cuda, project);
  rms_norm(cuda, args.main_x.bf16(), args.rows, args.main_proj.n, args.main_norm, args.norm_eps, args.main_x.bf16());
}

void draft_logits(Context& context, const DraftLogitsArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.markov_embed.format == WeightFormat::bf16 && args.confidence.format == WeightFormat::bf16);
  const auto* embed = static_cast<const uint16_t*>(args.markov_embed.data);
  const int d = static_cast<int>(args.hidden.cols), rank = args.markov_head.k;
  LinearArgs markov;
  markov.rows = args.rows;
  markov.x = embed;
  markov.x_stride = rank;
  markov.x_row = args.tokens;
  markov.w = args.markov_head;
  markov.y_f32 = args.logits.f32();
  markov.y_stride = args.logits.cols;
  markov.add = args.base.f32();
  linear(cuda, markov);
  confidence_kernel<<<args.rows, 256, 0, cuda.stream()>>>(args.tokens, args.hidden.bf16(), d, embed, rank,
                                                          static_cast<const uint16_t*>(args.confidence.data),
                                                          args.probability.f32());
  HADAL_CUDA_LAUNCHED("draft confidence");
}

}  // namespace hadal::cuda
