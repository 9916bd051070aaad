// Hyper-connections in one pass over the residual streams, plus a small one over the mixing sums and x.
//
// The 24 mixing products of a row are a matrix product: 16 rows x (4 d) times (4 d) x 24. They run on the tensor cores with
// fn split into three bf16 parts, which together hold its 24 bits: the sums are as good as fp32. A CTA owns 128 columns
// of d (of all four copies), so that its part of fn stays in shared memory and one row is spread over d / 128 CTAs.
// Columns, not rows, decide how sums are cut: a row has the same bits in every batch.
#include <algorithm>
#include <type_traits>

#include "ops/cuda/context.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/row.cuh"
#include "ops/hyper_connection/general.h"

namespace hadal::cuda {
namespace {

constexpr int kCopies = 4;
constexpr int kMixes = (2 + kCopies) * kCopies;  // 24 = three tiles of 8
constexpr int kTiles = kMixes / 8, kParts = 3;
constexpr int kWarps = 4, kColumns = 32 * kWarps, kRows = 16;
constexpr int kSums = kMixes + 2;  // the products, sum of squares of h', sum of squares of x
constexpr size_t kSharedFn = sizeof(uint4) * kWarps * kParts * kTiles * kCopies * 32;

struct Pass {
  int rows, d, slices;
  const uint16_t* h;
  const float *pre, *post, *comb;
  const uint16_t* y;
  const int32_t *source, *y_source;
  uint16_t* h_out;
  uint16_t* x;          // collapsed, before the norm
  uint16_t* collapsed;  // the same once more
  const float* fn;
  float* sums;  // [rows, slices * kWarps, kSums]: one part a warp, so that warps need not meet
};

__device__ __forceinline__ void unpack8(const uint4& v, float (&out)[8]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// This warp's part of fn, split in three, in the order of the tensor core's operand: lane (g, t) holds row 8 tile + g at
// columns 8 t .. 8 t + 7.
__device__ __forceinline__ void load_fn(const Pass& p, int column, uint4* to) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  for (int tile = 0; tile < kTiles; ++tile)
    for (int copy = 0; copy < kCopies; ++copy) {
      const float* from = p.fn + (int64_t{8 * tile + g} * kCopies + copy) * p.d + column;
      uint32_t part[kParts][4];
      for (int i = 0; i < 4; ++i) {
        float a = from[2 * i], b = from[2 * i + 1];
        for (int s = 0; s < kParts; ++s) {
          const uint32_t pair = pack_bf16x2(a, b);
          part[s][i] = pair;
          a -= __uint_as_float(pair << 16);
          b -= __uint_as_float(pair & 0xffff0000u);
        }
      }
      for (int s = 0; s < kParts; ++s)
        to[((s * kTiles + tile) * kCopies + copy) * 32 + lane] =
            make_uint4(part[s][0], part[s][1], part[s][2], part[s][3]);
    }
}

template <bool Write, bool Collapse, bool Mix>
__global__ void __launch_bounds__(32 * kWarps, 3) streams_kernel(const Pass p) {
  extern __shared__ uint4 fn_shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int slice = blockIdx.x, column = slice * kColumns + 32 * warp + 8 * t;
  const bool active = slice * kColumns + 32 * warp < p.d;
  uint4* const fn = fn_shared + warp * kParts * kTiles * kCopies * 32;
  if (Mix && active) load_fn(p, column, fn);
  __syncwarp();

  // What this lane reads of a row: one row tile ahead, so that the products hide the latency of memory.
  uint4 raw[2][kCopies], y_raw[2];
  const auto fetch = [&](int first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + g + 8 * half;
      if (!active || row >= p.rows) continue;
      const int64_t s = p.source != nullptr ? p.source[row] : row;
#pragma unroll
      for (int j = 0; j < kCopies; ++j)
        raw[half][j] = *reinterpret_cast<const uint4*>(p.h + (s * kCopies + j) * p.d + column);
      if constexpr (Write) {
        const int64_t ys = p.y_source != nullptr ? p.y_source[row] : row;
        y_raw[half] = *reinterpret_cast<const uint4*>(p.y + ys * p.d + column);
      }
    }
  };
  const int stride = gridDim.y * kRows;
  fetch(blockIdx.y * kRows);
  for (int r0 = blockIdx.y * kRows; r0 < p.rows; r0 += stride) {
    float dots[kTiles][4] = {}, hh[2] = {}, xx[2] = {};
    if (active) {
      uint32_t h_new[2][kCopies][4] = {};  // as packed pairs: the operand of the products
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = r0 + g + 8 * half;
        if (row >= p.rows) continue;
        const int64_t s = p.source != nullptr ? p.source[row] : row;
        if constexpr (Write) {
          float y[8], h[kCopies][8];
          unpack8(y_raw[half], y);
#pragma unroll
          for (int j = 0; j < kCopies; ++j) unpack8(raw[half][j], h[j]);
          float comb[kCopies * kCopies];
#pragma unroll
          for (int j = 0; j < kCopies; ++j) {
            const float4 c = *reinterpret_cast<const float4*>(p.comb + (s * kCopies + j) * kCopies);
            comb[4 * j] = c.x, comb[4 * j + 1] = c.y, comb[4 * j + 2] = c.z, comb[4 * j + 3] = c.w;
          }
          const float4 post4 = *reinterpret_cast<const float4*>(p.post + s * kCopies);
          const float post[kCopies] = {post4.x, post4.y, post4.z, post4.w};
#pragma unroll
          for (int k = 0; k < kCopies; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float v[2];
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                v[e] = post[k] * y[2 * i + e];
#pragma unroll
                for (int j = 0; j < kCopies; ++j) v[e] = fmaf(comb[j * kCopies + k], h[j][2 * i + e], v[e]);
              }
              h_new[half][k][i] = pack_bf16x2(v[0], v[1]);
            }
        } else {
#pragma unroll
          for (int j = 0; j < kCopies; ++j)
            h_new[half][j][0] = raw[half][j].x, h_new[half][j][1] = raw[half][j].y, h_new[half][j][2] = raw[half][j].z,
            h_new[half][j][3] = raw[half][j].w;
        }
        if (p.h_out != nullptr)
#pragma unroll
          for (int k = 0; k < kCopies; ++k) {
            const auto& v = h_new[half][k];
            *reinterpret_cast<uint4*>(p.h_out + (int64_t{row} * kCopies + k) * p.d + column) =
                make_uint4(v[0], v[1], v[2], v[3]);
          }
        float x[8] = {};
        float pre[kCopies] = {};
        if constexpr (Collapse) {
          const float4 pre4 = *reinterpret_cast<const float4*>(p.pre + s * kCopies);
          pre[0] = pre4.x, pre[1] = pre4.y, pre[2] = pre4.z, pre[3] = pre4.w;
        }
#pragma unroll
        for (int j = 0; j < kCopies; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float low = __uint_as_float(h_new[half][j][i] << 16);
            const float high = __uint_as_float(h_new[half][j][i] & 0xffff0000u);
            if constexpr (Mix) hh[half] = fmaf(high, high, fmaf(low, low, hh[half]));
            if constexpr (Collapse) {
              x[2 * i] = fmaf(pre[j], low, x[2 * i]);
              x[2 * i + 1] = fmaf(pre[j], high, x[2 * i + 1]);
            }
          }
        if constexpr (Collapse) {
          uint32_t packed[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            packed[i] = pack_bf16x2(x[2 * i], x[2 * i + 1]);
            const float low = __uint_as_float(packed[i] << 16), high = __uint_as_float(packed[i] & 0xffff0000u);
            xx[half] = fmaf(high, high, fmaf(low, low, xx[half]));
          }
          const uint4 v = make_uint4(packed[0], packed[1], packed[2], packed[3]);
          if (p.x != nullptr) *reinterpret_cast<uint4*>(p.x + int64_t{row} * p.d + column) = v;
          if (p.collapsed != nullptr) *reinterpret_cast<uint4*>(p.collapsed + int64_t{row} * p.d + column) = v;
        }
      }
      __syncwarp();
      fetch(r0 + stride);
      if constexpr (Mix) {
#pragma unroll
        for (int copy = 0; copy < kCopies; ++copy)
#pragma unroll
          for (int part = 0; part < kParts; ++part)
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
              const uint4 b = fn[((part * kTiles + tile) * kCopies + copy) * 32 + lane];
              const auto &a = h_new[0][copy], &c = h_new[1][copy];
              mma_bf16(dots[tile], a[0], c[0], a[1], c[1], b.x, b.y);
              mma_bf16(dots[tile], a[2], c[2], a[3], c[3], b.z, b.w);
            }
      }
    }
    if constexpr (Mix || Collapse) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        for (int offset = 1; offset < 4; offset *= 2) {
          hh[half] += __shfl_xor_sync(kFullWarp, hh[half], offset);
          xx[half] += __shfl_xor_sync(kFullWarp, xx[half], offset);
        }
        const int row = r0 + g + 8 * half;
        if (row >= p.rows) continue;
        auto* to = reinterpret_cast<float2*>(p.sums + ((int64_t{row} * p.slices + slice) * kWarps + warp) * kSums);
        for (int tile = 0; tile < kTiles; ++tile)
          to[4 * tile + t] = make_float2(dots[tile][2 * half], dots[tile][2 * half + 1]);
        if (t == 0) to[kMixes / 2] = make_float2(hh[half], xx[half]);
      }
    }
  }
}

struct Finish {
  int d, parts, sinkhorn_iters;
  float hc_eps, norm_eps;
  const float* sums;
  const float *base, *scale;  // null: no mixing
  const float* pre_in;
  const int32_t* source;
  float *pre, *post, *comb;
  const uint16_t* norm;  // null: no norm
  uint16_t* x;
};

// One CTA a row: warp 0 makes the coefficients, the other warps normalise x.
__global__ void __launch_bounds__(128) finish_kernel(const Finish p) {
  __shared__ float quarters[4][kSums];
  const int64_t row = blockIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = 0;
  if (p.sums != nullptr && lane < kSums) {
#pragma unroll 8
    for (int i = warp; i < p.parts; i += 4) sum += p.sums[(row * p.parts + i) * kSums + lane];
    quarters[warp][lane] = sum;
  }
  __syncthreads();
  sum = p.sums != nullptr && lane < kSums
            ? quarters[0][lane] + quarters[1][lane] + quarters[2][lane] + quarters[3][lane]
            : 0.0f;
  const float x_scale = inverse_rms(__shfl_sync(kFullWarp, sum, kMixes + 1), p.d, p.norm_eps);
  if (threadIdx.x >= 32) {
    if (p.norm == nullptr) return;
    auto* x = reinterpret_cast<uint4*>(p.x + row * p.d);
    const auto* norm = reinterpret_cast<const uint4*>(p.norm);
    for (int i = threadIdx.x - 32; i < p.d / 8; i += blockDim.x - 32) {
      float v[8], w[8];
      unpack8(x[i], v);
      unpack8(norm[i], w);
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] = w[e] * (v[e] * x_scale);
      x[i] = make_uint4(pack_bf16x2(v[0], v[1]), pack_bf16x2(v[2], v[3]), pack_bf16x2(v[4], v[5]),
                        pack_bf16x2(v[6], v[7]));
    }
    return;
  }
  if (p.base == nullptr) {
    if (p.pre != nullptr && lane < kCopies) {
      const int64_t s = p.source != nullptr ? p.source[row] : row;
      p.pre[row * kCopies + lane] = p.pre_in[s * kCopies + lane];
    }
    return;
  }
  const float rms = inverse_rms(__shfl_sync(kFullWarp, sum, kMixes), kCopies * p.d, p.norm_eps);
  const int i = min(lane, kMixes - 1);
  const float z = sum * rms * p.scale[min(i / kCopies, 2)] + p.base[i];
  const float gate = 1.0f / (1.0f + expf(-z));
  if (lane < kCopies) p.pre[row * kCopies + lane] = gate + p.hc_eps;
  if (lane >= kCopies && lane < 2 * kCopies) p.post[row * kCopies + lane - kCopies] = 2.0f * gate;

  // C[j, k] on lane 4 j + k, and once more on the upper half warp.
  float c = __shfl_sync(kFullWarp, z, 2 * kCopies + lane % 16);
  const auto over_k = [](float v) {
    v += __shfl_xor_sync(kFullWarp, v, 1);
    return v + __shfl_xor_sync(kFullWarp, v, 2);
  };
  const auto over_j = [](float v) {
    v += __shfl_xor_sync(kFullWarp, v, 4);
    return v + __shfl_xor_sync(kFullWarp, v, 8);
  };
  float top = fmaxf(c, __shfl_xor_sync(kFullWarp, c, 1));
  top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 2));
  c = expf(c - top);
  c = c / over_k(c) + p.hc_eps;
  for (int iteration = 0; iteration < p.sinkhorn_iters; ++iteration) {
    if (iteration > 0) c /= over_k(c) + p.hc_eps;
    c /= over_j(c) + p.hc_eps;
  }
  if (lane < 16) p.comb[row * 16 + lane] = c;
}

template <bool Write, bool Collapse, bool Mix>
void launch_streams(const Pass& p, int multiprocessors, cudaStream_t stream) {
  const size_t shared = Mix ? kSharedFn : 0;
  if (Mix)
    HADAL_CUDA(cudaFuncSetAttribute(streams_kernel<Write, Collapse, Mix>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kSharedFn)));
  const int tiles = (p.rows + kRows - 1) / kRows;
  const dim3 grid(p.slices, std::max(1, std::min(tiles, 3 * multiprocessors / p.slices)));
  streams_kernel<Write, Collapse, Mix><<<grid, 32 * kWarps, shared, stream>>>(p);
  HADAL_CUDA_LAUNCHED("streams");
}

__global__ void __launch_bounds__(256)
    tap_kernel(const uint16_t* h, const int32_t* source, int copies, int d, uint16_t* out, int64_t stride, int column) {
  const int64_t row = blockIdx.x, s = source != nullptr ? source[row] : row;
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    float sum = 0;
    for (int j = 0; j < copies; ++j) sum += from_bf16(h[(s * copies + j) * d + i]);
    out[row * stride + column + i] = to_bf16(sum / static_cast<float>(copies));
  }
}

}  // namespace

void hyper_connection(Context& context, const HyperConnectionArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  if (args.copies != kCopies || args.d % 32 != 0) return hyper_connection_general(cuda, args);
  const bool write = static_cast<bool>(args.y), mix = args.mix != nullptr;
  const bool collapse = args.norm != nullptr || static_cast<bool>(args.collapsed);
  HADAL_CUDA_CHECK(args.in.h.cols == int64_t{kCopies} * args.d);
  HADAL_CUDA_CHECK(!write || (args.in.post && args.in.comb));
  HADAL_CUDA_CHECK(!collapse || args.in.pre);
  HADAL_CUDA_CHECK(!mix || (args.out.pre && args.out.post && args.out.comb));
  HADAL_CUDA_CHECK(args.norm == nullptr || args.x);

  Scratch scratch(cuda);
  Pass p{};
  p.rows = args.rows;
  p.d = args.d;
  p.slices = (args.d + kColumns - 1) / kColumns;
  p.h = args.in.h.bf16();
  if (args.in.pre) p.pre = args.in.pre.f32();
  if (write) p.post = args.in.post.f32(), p.comb = args.in.comb.f32(), p.y = args.y.bf16();
  p.source = args.source;
  p.y_source = args.y_source;
  // Rows that stay as they are and where they are need no second writing.
  if (args.out.h && (write || args.out.h.data != args.in.h.data)) p.h_out = args.out.h.bf16();
  if (args.norm != nullptr) p.x = args.x.bf16();
  if (args.collapsed) p.collapsed = args.collapsed.bf16();
  if (mix) p.fn = args.mix->fn;
  if (mix || collapse) p.sums = scratch.get<float>(static_cast<size_t>(args.rows) * p.slices * kWarps * kSums);

  const auto launch = [&](auto w, auto c, auto m) {
    launch_streams<w.value, c.value, m.value>(p, cuda.multiprocessors(), cuda.stream());
  };
  using Yes = std::true_type;
  using No = std::false_type;
  if (write)
    mix ? (collapse ? launch(Yes{}, Yes{}, Yes{}) : launch(Yes{}, No{}, Yes{}))
        : (collapse ? launch(Yes{}, Yes{}, No{}) : launch(Yes{}, No{}, No{}));
  else
    mix ? (collapse ? launch(No{}, Yes{}, Yes{}) : launch(No{}, No{}, Yes{}))
        : (collapse ? launch(No{}, Yes{}, No{}) : launch(No{}, No{}, No{}));

  if (!mix && args.norm == nullptr && !args.out.pre) return;
  Finish f{};
  f.d = args.d;
  f.parts = p.slices * kWarps;
  f.sinkhorn_iters = args.sinkhorn_iters;
  f.hc_eps = args.hc_eps;
  f.norm_eps = args.norm_eps;
  f.sums = p.sums;
  if (mix) f.base = args.mix->base, f.scale = args.mix->scale;
  f.pre_in = p.pre;
  f.source = args.source;
  if (args.out.pre) f.pre = args.out.pre.f32();
  if (mix) f.post = args.out.post.f32(), f.comb = args.out.comb.f32();
  f.norm = args.norm;
  f.x = p.x;
  finish_kernel<<<args.rows, 128, 0, cuda.stream()>>>(f);
  HADAL_CUDA_LAUNCHED("mixing coefficients");
}

void tap(Context& context, const TapArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.h.cols == int64_t{args.copies} * args.d && args.column + args.d <= args.out.cols);
  tap_kernel<<<args.rows, 256, 0, cuda.stream()>>>(args.h.bf16(), args.source, args.copies, args.d, args.out.bf16(),
                                                   args.out.cols, args.column);
  HADAL_CUDA_LAUNCHED("tap");
}

}  // namespace hadal::cuda
