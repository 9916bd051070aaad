#include "ops/compressor/compressor.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 128;  // of a block for an entry
constexpr int kWarps = 4;      // of a block for keys, a row each

struct Pool {
  RowSet rows;
  Segments segments;
  int ratio, head_dim, index_dim;
  float eps;
  Rope rope;
  const float* ab;  // ratio 2: [rows, 2 * head_dim]; ratio 1: a alone, [rows, head_dim]
  const float* pending;
  const uint16_t* norm;
  const uint16_t* k_norm;
  PagedRows entries, keys;
  uint16_t* c;  // [rows, head_dim], rows that complete no group are zero
  float* latent;
};

// The group that row r completes, or -1.
__device__ __forceinline__ int completed_group(const Pool& p, int row) {
  const int position = p.rows.position[row];
  return (position + 1) % p.ratio == 0 ? position / p.ratio : -1;
}

// Four neighbouring channels of a row in FP4, a block of channels in neighbouring lanes. All lanes call it.
template <RowFormat F>
__device__ __forceinline__ void pack_four(const float (&v)[4], int channel, int dim, uint8_t* out) {
  constexpr int kBlock = F == RowFormat::fp4_ue8m0_32 ? 32 : 16;
  float a = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
#pragma unroll
  for (int lanes = 1; lanes < kBlock / 4; lanes *= 2) a = fmaxf(a, __shfl_xor_sync(kFullWarp, a, lanes));
  const uint8_t scale = kBlock == 32 ? q2_scale(a) : q3_scale(a);
  unsigned codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    codes |= static_cast<unsigned>(kBlock == 32 ? q2_code(v[i], scale) : q3_code(v[i], scale)) << 4 * i;
  if (channel >= dim) return;
  out[channel / 2] = static_cast<uint8_t>(codes);  // rows may have an odd number of bytes
  out[channel / 2 + 1] = static_cast<uint8_t>(codes >> 8);
  if (channel % kBlock == 0) out[dim / 2 + channel / kBlock] = scale;
}

// bf16( w * (v * scale) ) of four neighbours.
__device__ __forceinline__ void norm_four(float (&v)[4], const uint16_t* w, float scale) {
  const uint2 packed = *reinterpret_cast<const uint2*>(w);
  const uint32_t words[2] = {packed.x, packed.y};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    v[i] = round_bf16(__uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u) * (v[i] * scale));
}

// One block a row: pooling, norm, then rotation, Q3 and the entry. The un-rotated latent is left for the key.
__global__ void __launch_bounds__(kThreads) entry_kernel(const Pool p) {
  extern __shared__ __align__(16) float v[];
  __shared__ float sums[32];
  wait_for_previous();
  let_next_start();
  const int row = blockIdx.x, dim = p.head_dim, own = 4 * static_cast<int>(threadIdx.x);
  const int group = completed_group(p, row);
  uint16_t* c = p.c + int64_t{row} * dim;
  if (group < 0) {
    for (int i = own; i < dim; i += 4 * kThreads) *reinterpret_cast<uint2*>(c + i) = make_uint2(0, 0);
    return;
  }
  const int segment = p.rows.segment[row], pairs = p.rope.dim / 2;
  float2 cs{};  // long to compute: while the loads are under way
  if (static_cast<int>(threadIdx.x) < pairs) cs = rotation(p.rope, threadIdx.x, group * p.ratio);
  float sum = 0;
  const auto keep = [&](int i, const float(&x)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      v[i + k] = round_bf16(x[k]);
      sum += v[i + k] * v[i + k];
    }
  };
  if (p.ratio == 1) {
    for (int i = own; i < dim; i += 4 * kThreads) {
      const float4 x = *reinterpret_cast<const float4*>(p.ab + int64_t{row} * dim + i);
      keep(i, {x.x, x.y, x.z, x.w});
    }
  } else {
    const float* second = p.ab + int64_t{row} * 2 * dim;
    const float* first =
        row > p.rows.seg_begin[segment] ? second - 2 * dim : p.pending + int64_t{p.segments.slot[segment]} * 2 * dim;
    for (int i = own; i < dim; i += 4 * kThreads) {
      float x[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float b0 = first[dim + i + k], b1 = second[dim + i + k], top = fmaxf(b0, b1);
        const float e0 = expf(b0 - top), e1 = expf(b1 - top);
        x[k] = (e0 * first[i + k] + e1 * second[i + k]) / (e0 + e1);
      }
      keep(i, x);
    }
  }
  const float scale = inverse_rms(block_sum(sum, sums), dim, p.eps);
  for (int i = own; i < dim; i += 4 * kThreads) {
    float x[4] = {v[i], v[i + 1], v[i + 2], v[i + 3]};
    norm_four(x, p.norm + i, scale);
    *reinterpret_cast<uint2*>(c + i) = make_uint2(pack_bf16x2(x[0], x[1]), pack_bf16x2(x[2], x[3]));
    *reinterpret_cast<float4*>(v + i) = make_float4(x[0], x[1], x[2], x[3]);
    if (p.latent != nullptr)
      for (int k = 0; k < 4; ++k) p.latent[int64_t{row} * dim + i + k] = x[k];
  }
  __syncthreads();
  float* rotated = v + (dim - p.rope.dim);
  for (int i = threadIdx.x; i < pairs; i += kThreads)
    rotate_pair(rotated[2 * i], rotated[2 * i + 1], i < kThreads ? cs : rotation(p.rope, i, group * p.ratio));
  __syncthreads();
  uint8_t* entry = p.entries.rows + physical_row(p.segments, segment, p.entries.page_rows, group) * p.entries.row_bytes;
  for (int first = 0; first < dim; first += 4 * kThreads) {
    const int i = first + own;
    float x[4] = {};
    if (i < dim)
#pragma unroll
      for (int k = 0; k < 4; ++k) x[k] = v[i + k];
    pack_four<RowFormat::fp4_e4m3_16>(x, i, dim, entry);
  }
}

// One warp a row: k_norm, rotation, Q2, the index key.
__global__ void __launch_bounds__(32 * kWarps) key_kernel(const Pool p, const uint16_t* k) {
  extern __shared__ __align__(16) float shared[];
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % 32, dim = p.index_dim;
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= p.rows.rows) return;
  const int group = completed_group(p, row);
  if (group < 0) return;
  float* v = shared + threadIdx.x / 32 * dim;
  const int pairs = p.rope.dim / 2;
  float2 cs{};
  if (lane < pairs) cs = rotation(p.rope, lane, group * p.ratio);
  float sum = 0;
  for (int i = 4 * lane; i < dim; i += 128)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      v[i + e] = from_bf16(k[int64_t{row} * dim + i + e]);
      sum += v[i + e] * v[i + e];
    }
  const float scale = inverse_rms(warp_sum(sum), dim, p.eps);
  for (int i = 4 * lane; i < dim; i += 128) {
    float x[4] = {v[i], v[i + 1], v[i + 2], v[i + 3]};
    norm_four(x, p.k_norm + i, scale);
    *reinterpret_cast<float4*>(v + i) = make_float4(x[0], x[1], x[2], x[3]);
  }
  __syncwarp();
  float* rotated = v + (dim - p.rope.dim);
  for (int i = lane; i < pairs; i += 32)
    rotate_pair(rotated[2 * i], rotated[2 * i + 1], i < 32 ? cs : rotation(p.rope, i, group * p.ratio));
  __syncwarp();
  uint8_t* key =
      p.keys.rows + physical_row(p.segments, p.rows.segment[row], p.keys.page_rows, group) * p.keys.row_bytes;
  for (int first = 0; first < dim; first += 128) {
    const int i = first + 4 * lane;
    float x[4] = {};
    if (i < dim)
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = v[i + e];
    pack_four<RowFormat::fp4_ue8m0_32>(x, i, dim, key);
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
  const size_t shared = sizeof(float) * static_cast<size_t>(dim);
  if (shared > 40 * 1024) fail_shape("compressor", "a head of at most 10240 channels", dim);

  Scratch scratch(cuda);
  Tensor ab = args.ab;
  if (args.ratio == 1) {
    ab = cuda.tensor(rows, dim, DType::f32);
    linear(cuda, linear_args(args.x, args.wkv, ab));
  } else {
    HADAL_CUDA_CHECK(ab.type == DType::f32 && ab.cols == 2 * dim);
    LinearArgs half = linear_args(args.x, args.wkv, ab);
    half.rows = rows;
    linear(cuda, half);
    half.w = args.wgate;
    half.y_f32 = ab.f32() + dim;
    linear(cuda, half);
  }
  const Tensor c = cuda.activations(rows, dim), k = cuda.activations(rows, args.index_dim);
  const Pool pool{*args.rows,    *args.segments, args.ratio, dim,          args.index_dim,
                  args.norm_eps, args.rope,      ab.f32(),   args.pending, args.norm,
                  args.k_norm,   args.entries,   args.keys,  c.bf16(),     args.latent ? args.latent.f32() : nullptr};
  LaunchShape shape{
      .grid = dim3(rows), .block = dim3(kThreads), .shared = shared, .stream = cuda.stream(), .early = true};
  launch("compressed entries", entry_kernel, shape, pool);
  linear(cuda, linear_args(c, args.wk, k));
  shape.grid = dim3((rows + kWarps - 1) / kWarps);
  shape.block = dim3(32 * kWarps);
  shape.shared = sizeof(float) * static_cast<size_t>(args.index_dim) * kWarps;
  launch("index keys", key_kernel, shape, pool, k.bf16());
}

}  // namespace hadal::cuda
