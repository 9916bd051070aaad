#include <climits>

#include "ops/cuda/errors.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/row.cuh"
#include "ops/router/router.h"

namespace hadal::cuda {
namespace {

constexpr int kMaxTopk = 16;

// Larger value wins; of equal values the lower id.
__device__ __forceinline__ bool better(float value, int id, float than, int than_id) {
  return value > than || (value == than && id < than_id);
}

// One warp a row: scores, then topk rounds of "the best that is worse than the last one taken", so that nothing has to be
// marked. 384 experts are 12 values a lane and a round.
__global__ void __launch_bounds__(128)
    router_kernel(const float* logits, int rows, int experts, int topk, float gate_temp, float route_scale,
                  const float* bias, const float* bias_vl, const uint8_t* image, int32_t* ids, float* weights,
                  float* scores_out) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  float* score = shared + threadIdx.x / 32 * 2 * experts;
  float* key = score + experts;
  const float* b = image != nullptr && image[row] != 0 ? bias_vl : bias;
  for (int e = lane; e < experts; e += 32) {
    const float x = logits[row * experts + e] / gate_temp;
    const float s = sqrtf(x > 20.0f ? x : log1pf(expf(x)));  // sqrt(softplus(x)), PyTorch's form
    score[e] = s;
    key[e] = s + b[e];
    if (scores_out != nullptr) scores_out[row * experts + e] = s;
  }
  __syncwarp();

  int chosen = INT_MAX;  // lane i holds the i-th id taken
  float last = INFINITY;
  int last_id = -1;
  for (int i = 0; i < topk; ++i) {
    float best = -INFINITY;
    int best_id = INT_MAX;
    for (int e = lane; e < experts; e += 32)
      if (better(last, last_id, key[e], e) && better(key[e], e, best, best_id)) best = key[e], best_id = e;
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kFullWarp, best, offset);
      const int other_id = __shfl_xor_sync(kFullWarp, best_id, offset);
      if (better(other, other_id, best, best_id)) best = other, best_id = other_id;
    }
    last = best;
    last_id = best_id;
    if (lane == i) chosen = best_id;
  }
  // Ascending ids: the rank of an id is the number of smaller ones.
  int rank = 0;
  for (int i = 0; i < topk; ++i) rank += __shfl_sync(kFullWarp, chosen, i) < chosen;
  float sum = 1e-20f;
  for (int r = 0; r < topk; ++r) {  // the sum runs over ascending ids
    const int owner = __ffs(__ballot_sync(kFullWarp, lane < topk && rank == r)) - 1;
    sum += score[__shfl_sync(kFullWarp, chosen, owner)];
  }
  if (lane < topk) {
    ids[row * topk + rank] = chosen;
    weights[row * topk + rank] = score[chosen] / sum * route_scale;
  }
}

}  // namespace

void router(Context& context, const RouterArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  const int experts = args.gate.n;
  HADAL_CUDA_CHECK(args.topk <= experts && args.x.cols == args.gate.k);
  HADAL_CUDA_CHECK(args.image == nullptr || args.bias_vl != nullptr);
  if (args.topk > kMaxTopk) fail_shape("router", "at most 16 experts a token", args.topk);
  Scratch scratch(cuda);
  const Tensor logits = cuda.tensor(args.rows, experts, DType::f32);
  linear(cuda, linear_args(args.x, args.gate, logits));
  constexpr int kWarps = 4;
  const size_t shared = sizeof(float) * 2 * static_cast<size_t>(experts) * kWarps;
  if (shared > 48 * 1024) fail_shape("router", "at most 1536 experts", experts);
  router_kernel<<<(args.rows + kWarps - 1) / kWarps, 32 * kWarps, shared, cuda.stream()>>>(
      logits.f32(), args.rows, experts, args.topk, args.gate_temp, args.route_scale, args.bias, args.bias_vl,
      args.image, args.ids.i32(), args.weights.f32(), args.scores ? args.scores.f32() : nullptr);
  HADAL_CUDA_LAUNCHED("router");
}

}  // namespace hadal::cuda
