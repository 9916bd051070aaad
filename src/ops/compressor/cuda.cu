#include "ops/compressor/compressor.h"
#include "ops/cuda/bf16_linear.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 16, kMostRows = 32;  // of a block of append_kernel
constexpr int kMostDim = 512, kMostIndexDim = 8 * kWarps, kMostPairs = 32;

struct Pool {
  RowSet rows;
  Segments segments;
  int ratio, head_dim, index_dim;
  float eps;
  Rope rope;
  const float* ab;  // ratio 2: [rows, 2 * head_dim]; ratio 1: a alone, [rows, head_dim]
  const float* pending;
  const uint16_t* norm;
  const uint16_t* wk;
  const uint16_t* k_norm;
  PagedRows entries, keys;
  float* latent;
  int rows_each;  // of a block, at most kMostRows
};

// Four bf16 neighbours.
__device__ __forceinline__ void unpack_four(const uint2& packed, float (&v)[4]) {
  const uint32_t words[2] = {packed.x, packed.y};
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
}

__device__ __forceinline__ void prefetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

// What no kernel writes. Volatile, so that it is asked for where it stands.
__device__ __forceinline__ uint4 load_constant(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

// Four neighbouring channels of a row in FP4, a block of channels in neighbouring lanes. All lanes call it. Values are bf16: so
// few bits of value and scale that to compare with a limit times the scale says what the rounded quotient would.
template <RowFormat F>
__device__ __forceinline__ void pack_four(const float (&v)[4], int channel, int dim, uint8_t* out) {
  constexpr int kBlock = F == RowFormat::fp4_ue8m0_32 ? 32 : 16;
  float a = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
#pragma unroll
  for (int lanes = 1; lanes < kBlock / 4; lanes *= 2) a = fmaxf(a, __shfl_xor_sync(kFullWarp, a, lanes));
  const uint8_t scale = kBlock == 32 ? q2_scale(a) : q3_scale(a);
  const float unit = kBlock == 32 ? from_ue8m0(scale) : from_e4m3(scale);
  unsigned codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float x = fabsf(v[i]);  // as to_e2m1
    const unsigned code = (x > .25f * unit) + (x >= .75f * unit) + (x > 1.25f * unit) + (x >= 1.75f * unit) +
                          (x > 2.5f * unit) + (x >= 3.5f * unit) + (x > 5.0f * unit);
    codes |= (code | (__float_as_uint(v[i]) >> 31 << 3)) << 4 * i;
  }
  if (channel >= dim) return;
  out[channel / 2] = static_cast<uint8_t>(codes);  // rows may have an odd number of bytes
  out[channel / 2 + 1] = static_cast<uint8_t>(codes >> 8);
  if (channel % kBlock == 0) out[dim / 2 + channel / kBlock] = scale;
}

// bf16( w * (v * scale) ) of four neighbours.
__device__ __forceinline__ void norm_four(float (&v)[4], const uint2& w, float scale) {
  float weight[4];
  unpack_four(w, weight);
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = round_to_bf16(weight[i] * (v[i] * scale));
}

// Four neighbours of a lane that holds channel .. channel + 3 of a row, rotated where they are among its last rope.dim.
// Lane q holds cos and sin of pair q. All lanes call it.
__device__ __forceinline__ void rotate_four(float (&v)[4], int channel, int dim, const Rope& rope, float2 cs) {
  const int first = (channel - (dim - rope.dim)) / 2;
  const bool rotated = channel >= dim - rope.dim && channel < dim;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int pair = rotated ? first + i : 0;
    const float2 own = make_float2(__shfl_sync(kFullWarp, cs.x, pair), __shfl_sync(kFullWarp, cs.y, pair));
    if (rotated) rotate_pair(v[2 * i], v[2 * i + 1], own);
  }
}

// Four neighbours of the latent in front of its norm.
__device__ __forceinline__ float4 pooled(const float4& a0, const float4& b0, const float4& a1, const float4& b1) {
  const auto one = [](float a0, float b0, float a1, float b1) {
    const float e = expf(-fabsf(b0 - b1));  // the larger has exp(0)
    return (b0 >= b1 ? a0 + e * a1 : e * a0 + a1) / (1 + e);
  };
  return make_float4(one(a0.x, b0.x, a1.x, b1.x), one(a0.y, b0.y, a1.y, b1.y), one(a0.z, b0.z, a1.z, b1.z),
                     one(a0.w, b0.w, a1.w, b1.w));
}

// A block takes the groups that `rows_each` rows complete, a warp a group: pooling and norm; rotation, Q3 and the entry; then
// wk by the tensor cores, eight outputs a warp in one chain over k; then again a warp a group: k_norm, rotation, Q2 and the key.
__global__ void __launch_bounds__(32 * kWarps, 1) append_kernel(const __grid_constant__ Pool p) {
  constexpr int kQuads = kMostDim / 128, kChunks = kMostDim / 32;
  constexpr int kRow = kMostDim + 32, kKeyRow = kMostIndexDim + 8;  // so that lanes of a phase meet different banks
  __shared__ __align__(16) uint16_t c[kMostRows][kRow];
  __shared__ __align__(16) uint16_t k[kMostRows][kKeyRow];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = p.head_dim, own = 4 * lane;
  const int row0 = blockIdx.x * p.rows_each;

  // What does not depend on the kernel in front: the groups (lane l looks at row l), rotations, weights.
  int group = -1;
  if (lane < p.rows_each && row0 + lane < p.rows.rows) {
    const int position = p.rows.position[row0 + lane];
    if ((position + 1) % p.ratio == 0) group = position / p.ratio;
  }
  const unsigned complete = __ballot_sync(kFullWarp, group >= 0);
  const int count = __popc(complete), pairs = p.rope.dim / 2, rank = __popc(complete & ((1u << lane) - 1));
  const auto row_of = [&](int i) { return __ffs(__ballot_sync(kFullWarp, group >= 0 && rank == i)) - 1; };
  struct Place {
    int row;
    const float* first;  // (a, b) of the group's first token
    uint8_t *entry, *key;
    float2 cs;
  };
  const auto place_of = [&](int i) {
    const int source = row_of(i), row = row0 + source, segment = p.rows.segment[row];
    const int own_group = __shfl_sync(kFullWarp, group, source);
    const auto in = [&](const PagedRows& pool) {
      return pool.rows + physical_row(p.segments, segment, pool.page_rows, own_group) * pool.row_bytes;
    };
    Place at{row, nullptr, in(p.entries), in(p.keys), {}};
    if (p.ratio == 2)
      at.first = (row > p.rows.seg_begin[segment] ? p.ab + int64_t{row - 1} * 2 * dim
                                                  : p.pending + int64_t{p.segments.slot[segment]} * 2 * dim);
    if (lane < pairs) at.cs = rotation(p.rope, lane, own_group * p.ratio);
    return at;
  };
  Place place{};  // of the group that this warp looks at: the only one, but in blocks of more groups than warps
  if (warp < count) place = place_of(warp);
  uint2 norm[kQuads] = {}, k_norm{};
#pragma unroll
  for (int q = 0; q < kQuads; ++q)
    if (128 * q + own < dim) norm[q] = *reinterpret_cast<const uint2*>(p.norm + 128 * q + own);
  if (own < p.index_dim) k_norm = *reinterpret_cast<const uint2*>(p.k_norm + own);
  for (int at = (blockIdx.x * blockDim.x + threadIdx.x) * 64; at < p.index_dim * dim; at += gridDim.x * blockDim.x * 64)
    prefetch_line(p.wk + at);
  wait_for_previous();
  let_next_start();
  if (count == 0) return;

  for (int i = warp; i < count; i += kWarps) {
    if (i > warp) place = place_of(i);
    const int row = place.row;
    float4 v[kQuads];
    if (p.ratio == 1) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q)
        if (128 * q + own < dim) v[q] = *reinterpret_cast<const float4*>(p.ab + int64_t{row} * dim + 128 * q + own);
    } else {
      const float *first = place.first, *second = p.ab + int64_t{row} * 2 * dim;
      float4 a0[kQuads], b0[kQuads], a1[kQuads], b1[kQuads];
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const int at = 128 * q + own;
        if (at >= dim) continue;
        a0[q] = *reinterpret_cast<const float4*>(first + at);
        b0[q] = *reinterpret_cast<const float4*>(first + dim + at);
        a1[q] = *reinterpret_cast<const float4*>(second + at);
        b1[q] = *reinterpret_cast<const float4*>(second + dim + at);
      }
#pragma unroll
      for (int q = 0; q < kQuads; ++q)
        if (128 * q + own < dim) v[q] = pooled(a0[q], b0[q], a1[q], b1[q]);
    }
    float sum = 0;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      if (128 * q + own >= dim) continue;
      v[q] = make_float4(round_to_bf16(v[q].x), round_to_bf16(v[q].y), round_to_bf16(v[q].z), round_to_bf16(v[q].w));
      sum += v[q].x * v[q].x + v[q].y * v[q].y + v[q].z * v[q].z + v[q].w * v[q].w;
    }
    const float scale = inverse_rms(warp_sum(sum), dim, p.eps);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int at = 128 * q + own;
      if (at >= dim) continue;
      float x[4] = {v[q].x, v[q].y, v[q].z, v[q].w};
      norm_four(x, norm[q], scale);
      *reinterpret_cast<uint2*>(&c[i][at]) = make_uint2(pack_bf16x2(x[0], x[1]), pack_bf16x2(x[2], x[3]));
      if (p.latent != nullptr)
        *reinterpret_cast<float4*>(p.latent + int64_t{row} * dim + at) = make_float4(x[0], x[1], x[2], x[3]);
    }
  }

  // This warp's weights, asked for while entries are packed. Lane (g, t) has 16 bytes of row g in every chunk of 32 channels.
  const int g = lane / 4, t = lane % 4;
  uint4 w[kChunks] = {};
  if (8 * warp < p.index_dim)
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
      if (32 * chunk < dim) w[chunk] = load_constant(p.wk + (8 * warp + g) * dim + 32 * chunk + 8 * t);

  __syncwarp();
  for (int i = warp; i < count; i += kWarps) {
    if (count > kWarps) place = place_of(i);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      if (128 * q >= dim) break;
      float x[4] = {};
      const int channel = 128 * q + own;
      if (channel < dim) unpack_four(*reinterpret_cast<const uint2*>(&c[i][channel]), x);
      rotate_four(x, channel, dim, p.rope, place.cs);
      pack_four<RowFormat::fp4_e4m3_16>(x, channel, dim, place.entry);
    }
  }
  __syncthreads();

  if (8 * warp < p.index_dim)
    for (int i0 = 0; i0 < count; i0 += 16) {
      float d[4] = {};
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        if (32 * chunk >= dim) break;
        const uint4 upper = *reinterpret_cast<const uint4*>(&c[i0 + g][32 * chunk + 8 * t]);
        const uint4 lower = *reinterpret_cast<const uint4*>(&c[i0 + 8 + g][32 * chunk + 8 * t]);
        mma_bf16(d, upper.x, lower.x, upper.y, lower.y, w[chunk].x, w[chunk].y);
        mma_bf16(d, upper.z, lower.z, upper.w, lower.w, w[chunk].z, w[chunk].w);
      }
      *reinterpret_cast<uint32_t*>(&k[i0 + g][8 * warp + 2 * t]) = pack_bf16x2(d[0], d[1]);
      *reinterpret_cast<uint32_t*>(&k[i0 + 8 + g][8 * warp + 2 * t]) = pack_bf16x2(d[2], d[3]);
    }
  __syncthreads();

  for (int i = warp; i < count; i += kWarps) {
    if (count > kWarps) place = place_of(i);
    float x[4] = {};
    if (own < p.index_dim) unpack_four(*reinterpret_cast<const uint2*>(&k[i][own]), x);
    const float sum = warp_sum(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]);
    if (own < p.index_dim) norm_four(x, k_norm, inverse_rms(sum, p.index_dim, p.eps));
    rotate_four(x, own, p.index_dim, p.rope, place.cs);
    pack_four<RowFormat::fp4_ue8m0_32>(x, own, p.index_dim, place.key);
  }
}

}  // namespace

void compressor(Context& context, const CompressorArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int rows = args.rows->rows, dim = args.head_dim;
  if (rows == 0) return;
  HADAL_CUDA_CHECK((args.ratio == 1 || args.ratio == 2) && dim % 32 == 0 && args.index_dim % 32 == 0);
  HADAL_CUDA_CHECK(args.entries.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_e4m3_16, dim)));
  HADAL_CUDA_CHECK(args.keys.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, args.index_dim)));
  HADAL_CUDA_CHECK(args.wk.format == WeightFormat::bf16 && args.wk.n == args.index_dim && args.wk.k == dim);
  if (dim > kMostDim) fail_shape("compressor", "a head of at most 512 channels", dim);
  if (args.index_dim > kMostIndexDim) fail_shape("compressor", "index keys of at most 128 channels", args.index_dim);
  if (args.rope.dim > 2 * kMostPairs || args.rope.dim % 4 != 0)
    fail_shape("compressor", "at most 64 rotated channels, a multiple of 4", args.rope.dim);

  Scratch scratch(cuda);
  Tensor ab = args.ab;
  if (args.ratio == 1)
    ab = cuda.tensor(rows, dim, DType::f32);
  else
    HADAL_CUDA_CHECK(ab.type == DType::f32 && ab.cols == 2 * dim);
  if (bf16_linear_takes(cuda, args.wkv) && args.x.cols == args.wkv.k) {
    const auto data = [](const Weight& w) { return static_cast<const uint16_t*>(w.data); };
    bf16_linear(cuda, {args.x.bf16(),
                       {data(args.wkv), args.ratio == 1 ? nullptr : data(args.wgate)},
                       rows,
                       dim,
                       args.wkv.k,
                       ab.f32(),
                       nullptr});
  } else {
    LinearArgs half = linear_args(args.x, args.wkv, ab);
    linear(cuda, half);
    if (args.ratio == 2) {
      half.w = args.wgate;
      half.y_f32 = ab.f32() + dim;
      linear(cuda, half);
    }
  }
  // With few rows latency counts: a warp has one group.
  const int rows_each = rows <= 1024 ? 8 : kMostRows;
  const Pool pool{*args.rows,
                  *args.segments,
                  args.ratio,
                  dim,
                  args.index_dim,
                  args.norm_eps,
                  args.rope,
                  ab.f32(),
                  args.pending,
                  args.norm,
                  static_cast<const uint16_t*>(args.wk.data),
                  args.k_norm,
                  args.entries,
                  args.keys,
                  args.latent ? args.latent.f32() : nullptr,
                  rows_each};
  launch("compressed entries", append_kernel,
         {.grid = dim3((rows + rows_each - 1) / rows_each),
          .block = dim3(32 * kWarps),
          .stream = cuda.stream(),
          .early = true},
         pool);
}

}  // namespace hadal::cuda
