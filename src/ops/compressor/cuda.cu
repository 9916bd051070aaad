#include "ops/compressor/compressor.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 4;

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

// One warp a row: pooling, norm, then rotation, Q3 and the entry. The un-rotated latent is left for the key.
__global__ void __launch_bounds__(32 * kWarps) entry_kernel(const Pool p) {
  extern __shared__ float shared[];
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % 32, dim = p.head_dim;
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= p.rows.rows) return;
  const int group = completed_group(p, row);
  uint16_t* c = p.c + int64_t{row} * dim;
  if (group < 0) {
    for (int i = lane; i < dim; i += 32) c[i] = 0;
    return;
  }
  float* v = shared + threadIdx.x / 32 * dim;
  const int segment = p.rows.segment[row];
  if (p.ratio == 1) {
    for (int i = lane; i < dim; i += 32) v[i] = round_bf16(p.ab[int64_t{row} * dim + i]);
  } else {
    const float* second = p.ab + int64_t{row} * 2 * dim;
    const float* first =
        row > p.rows.seg_begin[segment] ? second - 2 * dim : p.pending + int64_t{p.segments.slot[segment]} * 2 * dim;
    for (int i = lane; i < dim; i += 32) {
      const float b0 = first[dim + i], b1 = second[dim + i], top = fmaxf(b0, b1);
      const float e0 = expf(b0 - top), e1 = expf(b1 - top);
      v[i] = round_bf16((e0 * first[i] + e1 * second[i]) / (e0 + e1));
    }
  }
  __syncwarp();
  warp_norm(v, dim, p.norm, p.eps);
  for (int i = lane; i < dim; i += 32) {
    c[i] = to_bf16(v[i]);
    if (p.latent != nullptr) p.latent[int64_t{row} * dim + i] = v[i];
  }
  warp_rotate(v, dim, p.rope, group * p.ratio);
  const int64_t physical = physical_row(p.segments, segment, p.entries.page_rows, group);
  warp_pack<RowFormat::fp4_e4m3_16>(v, dim, p.entries.rows + physical * p.entries.row_bytes);
}

// One warp a row: k_norm, rotation, Q2, the index key.
__global__ void __launch_bounds__(32 * kWarps) key_kernel(const Pool p, const uint16_t* k) {
  extern __shared__ float shared[];
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % 32, dim = p.index_dim;
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= p.rows.rows) return;
  const int group = completed_group(p, row);
  if (group < 0) return;
  float* v = shared + threadIdx.x / 32 * dim;
  for (int i = lane; i < dim; i += 32) v[i] = from_bf16(k[int64_t{row} * dim + i]);
  __syncwarp();
  warp_norm(v, dim, p.k_norm, p.eps);
  warp_rotate(v, dim, p.rope, group * p.ratio);
  const int64_t physical = physical_row(p.segments, p.rows.segment[row], p.keys.page_rows, group);
  warp_pack<RowFormat::fp4_ue8m0_32>(v, dim, p.keys.rows + physical * p.keys.row_bytes);
}

}  // namespace

void compressor(Context& context, const CompressorArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int rows = args.rows->rows, dim = args.head_dim;
  if (rows == 0) return;
  HADAL_CUDA_CHECK((args.ratio == 1 || args.ratio == 2) && dim % 32 == 0 && args.index_dim % 32 == 0);
  HADAL_CUDA_CHECK(args.entries.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_e4m3_16, dim)));
  HADAL_CUDA_CHECK(args.keys.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, args.index_dim)));
  const size_t shared = sizeof(float) * static_cast<size_t>(dim) * kWarps;
  if (shared > 48 * 1024) fail_shape("compressor", "a head of at most 3072 channels", dim);

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
  const int grid = (rows + kWarps - 1) / kWarps;
  LaunchShape shape{
      .grid = dim3(grid), .block = dim3(32 * kWarps), .shared = shared, .stream = cuda.stream(), .early = true};
  launch("compressed entries", entry_kernel, shape, pool);
  linear(cuda, linear_args(c, args.wk, k));
  shape.shared = sizeof(float) * static_cast<size_t>(args.index_dim) * kWarps;
  launch("index keys", key_kernel, shape, pool, k.bf16());
}

}  // namespace hadal::cuda
