// From the logits of a row to its experts, one warp a row.
#pragma once

#include <climits>

#include "ops/cuda/row.cuh"

namespace hadal::cuda {

struct RouterSelect {
  int rows, experts, topk;  // topk at most 16
  float gate_temp, route_scale;
  const float *bias, *bias_vl;
  const uint8_t* image;
  int32_t* ids;
  float *weights, *scores;  // scores may be null
};

// Order of floats as unsigned integers, above 0 for all but one NaN; -0 is 0.
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

__device__ __forceinline__ float router_score(const RouterSelect& p, float logit) {
  const float x = p.gate_temp == 1.0f ? logit : logit / p.gate_temp;
  return sqrtf(x > 20.0f ? x : log1pf(expf(x)));  // sqrt(softplus(x)), PyTorch's form
}
__device__ __forceinline__ const float* router_bias(const RouterSelect& p, int64_t row) {
  return p.image != nullptr && p.image[row] != 0 ? p.bias_vl : p.bias;
}

// key[i] is that of expert lane + 32 i, as ordered(); 0 where there is none. Larger keys win, among equals the lower id.
// score_of(id) may be asked of any lane.
template <int PerLane, typename ScoreOf>
__device__ __forceinline__ void select_experts(const RouterSelect& p, int64_t row, uint32_t (&key)[PerLane],
                                               const ScoreOf& score_of) {
  const int lane = threadIdx.x % 32;
  int chosen = INT_MAX;  // lane r holds the expert taken in round r
  for (int r = 0; r < p.topk; ++r) {
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) best = max(best, key[i]);
    const uint32_t top = __reduce_max_sync(kFullWarp, best);
    int id = INT_MAX;
#pragma unroll
    for (int i = PerLane - 1; i >= 0; --i)
      if (key[i] == top) id = lane + 32 * i;
    id = __reduce_min_sync(kFullWarp, id);
#pragma unroll
    for (int i = 0; i < PerLane; ++i)
      if (lane + 32 * i == id) key[i] = 0;  // taken
    if (lane == r) chosen = id;
  }
  const float score = lane < p.topk ? score_of(chosen) : 0.0f;
  // Ascending ids: the rank of an id is the number of smaller ones.
  int rank = 0;
  for (int r = 0; r < p.topk; ++r) rank += __shfl_sync(kFullWarp, chosen, r) < chosen;
  float sum = 1e-20f;
  for (int r = 0; r < p.topk; ++r) {  // the sum runs over ascending ids
    const int owner = __ffs(__ballot_sync(kFullWarp, lane < p.topk && rank == r)) - 1;
    sum += __shfl_sync(kFullWarp, score, owner);
  }
  if (lane < p.topk) {
    p.ids[row * p.topk + rank] = chosen;
    p.weights[row * p.topk + rank] = score / sum * p.route_scale;
  }
}

// The same from a warp's logits, expert lane + 32 i each; `shared` has room for the scores.
template <int PerLane>
__device__ __forceinline__ void select_from_logits(const RouterSelect& p, int64_t row, const float (&logit)[PerLane],
                                                   float* shared) {
  const int lane = threadIdx.x % 32;
  const float* bias = router_bias(p, row);
  uint32_t key[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int e = lane + 32 * i;
    key[i] = 0;
    if (e >= p.experts) continue;
    const float score = router_score(p, logit[i]);
    shared[e] = score;
    key[i] = ordered(score + bias[e]);
    if (p.scores != nullptr) p.scores[row * p.experts + e] = score;
  }
  __syncwarp();
  select_experts(p, row, key, [&](int id) { return shared[id]; });
}

}  // namespace hadal::cuda
