// Sparse attention for any number of heads and any head size: one block a query and head, scores in shared memory, the
// softmax in two passes as the specification writes it. For test checkpoints, and what the matrix kernel is checked with.
#include "ops/cuda/errors.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/row.cuh"
#include "ops/sparse_attention/kernels.h"
#include "ops/sparse_attention/keys.cuh"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float window_value(const uint8_t* row, int dim, int c) {
  return from_e4m3(row[c]) * from_ue8m0(row[dim + c / 32]);
}
__device__ __forceinline__ float entry_value(const uint8_t* row, int dim, int c) {
  const uint8_t byte = row[c / 2];
  return from_e2m1((c & 1) != 0 ? byte >> 4 : byte & 15) * from_e4m3(row[dim / 2 + c / 16]);
}

__global__ void __launch_bounds__(kThreads) general_kernel(const AttentionProblem p) {
  extern __shared__ float shared[];
  const SparseAttentionArgs& a = p.args;
  const int row = blockIdx.x, head = blockIdx.y, dim = a.head_dim;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* q = shared;            // [dim]
  float* score = shared + dim;  // [keys]
  __shared__ float reduce[32];
  const KeyList keys = key_list(a, row, p.in, p.out, p.segments, p.has_entries ? &p.entries : nullptr, &p.selection);
  const int window = keys.window_count(), count = keys.count();
  const int64_t at = (static_cast<int64_t>(row) * a.heads + head) * dim;
  for (int c = threadIdx.x; c < dim; c += kThreads) q[c] = from_bf16(static_cast<const uint16_t*>(a.q.data)[at + c]);
  __syncthreads();

  float top = -1e30f;
  for (int t = warp; t < count; t += kThreads / 32) {
    float sum = 0;
    if (t < window) {
      const uint8_t* key = window_row(a, keys, t);
      for (int c = lane; c < dim; c += 32) sum = fmaf(q[c], window_value(key, dim, c), sum);
    } else {
      const uint8_t* key = p.entries.rows + static_cast<int64_t>(keys.entries[t - window]) * p.entries.row_bytes;
      for (int c = lane; c < dim; c += 32) sum = fmaf(q[c], entry_value(key, dim, c), sum);
    }
    sum = warp_sum(sum) * a.scale;
    if (lane == 0) score[t] = sum;
    top = fmaxf(top, sum);
  }
  if (lane == 0) reduce[warp] = top;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) top = fmaxf(top, reduce[w]);
  float z = 0;
  for (int t = threadIdx.x; t < count; t += kThreads) {
    const float e = expf(score[t] - top);
    z += e;
    score[t] = p.round_probabilities ? round_bf16(e) : e;
  }
  z = block_sum(z, reduce) + expf(a.sink[head] - top);
  __syncthreads();
  for (int c = threadIdx.x; c < dim; c += kThreads) {
    float sum = 0;
    for (int t = 0; t < window; ++t) sum = fmaf(score[t], window_value(window_row(a, keys, t), dim, c), sum);
    for (int t = window; t < count; ++t)
      sum = fmaf(
          score[t],
          entry_value(p.entries.rows + static_cast<int64_t>(keys.entries[t - window]) * p.entries.row_bytes, dim, c),
          sum);
    q[c] = round_bf16(sum / z);
  }
  __syncthreads();
  float* rotated = q + (dim - a.rope.dim);
  for (int i = threadIdx.x; i < a.rope.dim / 2; i += kThreads) {
    float2 cs = rotation(a.rope, i, p.out.position[row]);
    cs.y = -cs.y;
    rotate_pair(rotated[2 * i], rotated[2 * i + 1], cs);
  }
  __syncthreads();
  for (int c = threadIdx.x; c < dim; c += kThreads) static_cast<uint16_t*>(a.o.data)[at + c] = to_bf16(q[c]);
}

}  // namespace

void general_attention(const AttentionProblem& p, int most_keys, cudaStream_t stream) {
  const size_t bytes = (p.args.head_dim + static_cast<size_t>(most_keys)) * sizeof(float);
  launch("general_attention", general_kernel,
         {.grid = dim3(p.out.rows, p.args.heads), .block = dim3(kThreads), .shared = bytes, .stream = stream}, p);
}

}  // namespace hadal::cuda
