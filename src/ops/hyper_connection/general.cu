#include "ops/hyper_connection/general.h"

#include "ops/cuda/errors.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

constexpr int kMaxCopies = 8, kMaxMixes = (2 + kMaxCopies) * kMaxCopies;

struct General {
  int copies, d, sinkhorn_iters;
  float hc_eps, norm_eps;
  const uint16_t* h;
  const float *pre, *post, *comb;
  const uint16_t* y;
  const int32_t *source, *y_source;
  uint16_t *h_out, *x, *collapsed;
  const uint16_t* norm;
  float *pre_out, *post_out, *comb_out;
  const float *fn, *base, *scale;
};

// Mixing coefficients from the products; one thread. out: pre, post, comb in a row.
__device__ void mix(const General& p, float* m) {
  const int n = p.copies;
  for (int i = 0; i < (2 + n) * n; ++i) m[i] = m[i] * p.scale[min(i / n, 2)] + p.base[i];
  for (int i = 0; i < 2 * n; ++i) {
    const float gate = 1.0f / (1.0f + expf(-m[i]));
    m[i] = i < n ? gate + p.hc_eps : 2.0f * gate;
  }
  float* c = m + 2 * n;
  for (int j = 0; j < n; ++j) {
    float top = c[j * n], sum = 0;
    for (int k = 1; k < n; ++k) top = fmaxf(top, c[j * n + k]);
    for (int k = 0; k < n; ++k) sum += c[j * n + k] = expf(c[j * n + k] - top);
    for (int k = 0; k < n; ++k) c[j * n + k] = c[j * n + k] / sum + p.hc_eps;
  }
  for (int iteration = 0; iteration < p.sinkhorn_iters; ++iteration) {
    if (iteration > 0)
      for (int j = 0; j < n; ++j) {
        float sum = p.hc_eps;
        for (int k = 0; k < n; ++k) sum += c[j * n + k];
        for (int k = 0; k < n; ++k) c[j * n + k] /= sum;
      }
    for (int k = 0; k < n; ++k) {
      float sum = p.hc_eps;
      for (int j = 0; j < n; ++j) sum += c[j * n + k];
      for (int j = 0; j < n; ++j) c[j * n + k] /= sum;
    }
  }
}

__global__ void __launch_bounds__(256) general_kernel(const General p) {
  __shared__ float shared[32], m[kMaxMixes], pre[kMaxCopies];
  const int64_t row = blockIdx.x, s = p.source != nullptr ? p.source[row] : row;
  const int64_t ys = p.y_source != nullptr ? p.y_source[row] : row;
  const int n = p.copies, wide = n * p.d;
  // Copied first: pre_out may be the memory of pre.
  if (p.pre != nullptr && threadIdx.x < n) pre[threadIdx.x] = p.pre[s * n + threadIdx.x];
  __syncthreads();

  float hh = 0, xx = 0;
  for (int i = threadIdx.x; i < p.d; i += blockDim.x) {
    float h[kMaxCopies], out[kMaxCopies], x = 0;
    for (int j = 0; j < n; ++j) out[j] = h[j] = from_bf16(p.h[s * wide + j * p.d + i]);
    if (p.y != nullptr) {
      const float y = from_bf16(p.y[ys * p.d + i]);
      for (int k = 0; k < n; ++k) {
        float v = p.post[s * n + k] * y;
        for (int j = 0; j < n; ++j) v = fmaf(p.comb[(s * n + j) * n + k], h[j], v);
        out[k] = round_bf16(v);
      }
    }
    for (int k = 0; k < n; ++k) {
      if (p.h_out != nullptr) p.h_out[row * wide + k * p.d + i] = to_bf16(out[k]);
      hh = fmaf(out[k], out[k], hh);
      if (p.pre != nullptr) x = fmaf(pre[k], out[k], x);
    }
    x = round_bf16(x);
    xx = fmaf(x, x, xx);
    if (p.x != nullptr) p.x[row * p.d + i] = to_bf16(x);
    if (p.collapsed != nullptr) p.collapsed[row * p.d + i] = to_bf16(x);
  }
  hh = block_sum(hh, shared);
  xx = block_sum(xx, shared);
  if (p.norm != nullptr) {
    const float scale = inverse_rms(xx, p.d, p.norm_eps);
    for (int i = threadIdx.x; i < p.d; i += blockDim.x)
      p.x[row * p.d + i] = to_bf16(from_bf16(p.norm[i]) * from_bf16(p.x[row * p.d + i]) * scale);
  }
  if (p.fn == nullptr) {
    if (p.pre_out != nullptr && threadIdx.x < n) p.pre_out[row * n + threadIdx.x] = pre[threadIdx.x];
    return;
  }
  const float rms = inverse_rms(hh, wide, p.norm_eps);
  for (int i = 0; i < (2 + n) * n; ++i) {
    float sum = 0;
    for (int v = threadIdx.x; v < p.d; v += blockDim.x)  // the columns this thread has written
      for (int k = 0; k < n; ++k)
        sum = fmaf(p.fn[int64_t{i} * wide + k * p.d + v], from_bf16(p.h_out[row * wide + k * p.d + v]), sum);
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) m[i] = sum * rms;
  }
  if (threadIdx.x != 0) return;
  mix(p, m);
  for (int i = 0; i < n; ++i) p.pre_out[row * n + i] = m[i], p.post_out[row * n + i] = m[n + i];
  for (int i = 0; i < n * n; ++i) p.comb_out[row * n * n + i] = m[2 * n + i];
}

}  // namespace

void hyper_connection_general(CudaContext& cuda, const HyperConnectionArgs& args) {
  if (args.copies > kMaxCopies) fail_shape("hyper_connection", "at most 8 copies", args.copies);
  Scratch scratch(cuda);
  const auto f32 = [](const Tensor& t) { return t ? t.f32() : nullptr; };
  const auto bf16 = [](const Tensor& t) { return t ? t.bf16() : nullptr; };
  General p{};
  p.copies = args.copies;
  p.d = args.d;
  p.sinkhorn_iters = args.sinkhorn_iters;
  p.hc_eps = args.hc_eps;
  p.norm_eps = args.norm_eps;
  p.h = args.in.h.bf16();
  p.pre = f32(args.in.pre);
  p.post = f32(args.in.post);
  p.comb = f32(args.in.comb);
  p.y = bf16(args.y);
  p.source = args.source;
  p.y_source = args.y_source;
  p.h_out = bf16(args.out.h);
  if (args.mix != nullptr && p.h_out == nullptr)
    p.h_out = scratch.get<uint16_t>(static_cast<size_t>(args.rows) * args.copies * args.d);
  p.collapsed = bf16(args.collapsed);
  p.norm = args.norm;
  if (args.norm != nullptr) p.x = args.x.bf16();
  p.pre_out = f32(args.out.pre);
  p.post_out = f32(args.out.post);
  p.comb_out = f32(args.out.comb);
  if (args.mix != nullptr) p.fn = args.mix->fn, p.base = args.mix->base, p.scale = args.mix->scale;
  general_kernel<<<args.rows, 256, 0, cuda.stream()>>>(p);
  HADAL_CUDA_LAUNCHED("hyper_connection");
}

}  // namespace hadal::cuda
