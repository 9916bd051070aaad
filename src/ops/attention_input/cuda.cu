#include "ops/attention_input/attention_input.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 4;

// Window latents, one warp a row: norm, rotation, Q1, packed.
__global__ void __launch_bounds__(32 * kWarps)
    latent_kernel(const uint16_t* kv, int rows, int dim, const int32_t* position, const uint16_t* norm, float eps,
                  Rope rope, uint8_t* latent, int row_bytes) {
  extern __shared__ float shared[];
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= rows) return;
  float* v = shared + threadIdx.x / 32 * dim;
  for (int i = lane; i < dim; i += 32) v[i] = from_bf16(kv[row * dim + i]);
  __syncwarp();
  warp_norm(v, dim, norm, eps);
  warp_rotate(v, dim, rope, position[row]);
  warp_pack<RowFormat::fp8_ue8m0_32>(v, dim, latent + row * row_bytes);
}

// Queries, in place: one CTA a row, one warp a head at a time, one lane a pair. Only the rotated channels are touched.
__global__ void __launch_bounds__(256)
    rotate_heads_kernel(uint16_t* q, int heads, int head_dim, const int32_t* position, Rope rope) {
  wait_for_previous();
  let_next_start();
  const int64_t row = blockIdx.x;
  for (int pair = threadIdx.x % 32; pair < rope.dim / 2; pair += 32) {
    const float2 cs = rotation(rope, pair, position[row]);
    for (int head = threadIdx.x / 32; head < heads; head += blockDim.x / 32) {
      auto* at = reinterpret_cast<uint32_t*>(q + (row * heads + head) * head_dim + head_dim - rope.dim) + pair;
      float re = from_bf16(static_cast<uint16_t>(*at)), im = from_bf16(static_cast<uint16_t>(*at >> 16));
      rotate_pair(re, im, cs);
      *at = to_bf16(re) | (static_cast<uint32_t>(to_bf16(im)) << 16);
    }
  }
}

}  // namespace

void attention_input(Context& context, const AttentionInputArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int rows = args.in->rows;
  HADAL_CUDA_CHECK(args.head_dim % 32 == 0 && args.rope.dim % 2 == 0 && args.rope.dim <= args.head_dim);
  HADAL_CUDA_CHECK(args.latent.cols == static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, args.head_dim)));
  Scratch scratch(cuda);
  const bool queries_follow = args.out != nullptr && args.out->rows > 0;
  // In `fp8` numerics wkv and wq_a share Q4 of x, where they read the same rows.
  Fp8Rows x;
  if (rows > 0 && wants_fp8(cuda, rows, args.wkv)) {
    x = fp8_rows(scratch, rows, args.wkv.k);
    quantise_rows(cuda, args.x.bf16(), args.x.cols, nullptr, x);
  }
  // The latents, beside the queries.
  Branch latents(cuda, rows);
  if (rows > 0) {
    const Tensor kv = cuda.activations(rows, args.head_dim);
    LinearArgs latent = linear_args(args.x, args.wkv, kv);
    latent.x_fp8 = x;
    linear(cuda, latent);
    const size_t shared = sizeof(float) * static_cast<size_t>(args.head_dim) * kWarps;
    if (shared > 48 * 1024) fail_shape("attention_input", "a head of at most 3072 channels", args.head_dim);
    launch("window latents", latent_kernel,
           {.grid = dim3((rows + kWarps - 1) / kWarps),
            .block = dim3(32 * kWarps),
            .shared = shared,
            .stream = cuda.stream(),
            .early = true},
           kv.bf16(), rows, args.head_dim, args.in->position, args.kv_norm, args.norm_eps, args.rope, args.latent.u8(),
           static_cast<int>(args.latent.cols));
  }
  latents.rest();
  if (!queries_follow) return;
  const int queries = args.out->rows;
  LinearArgs down = linear_args(args.x, args.wq_a, args.qr);
  down.rows = queries;
  down.x_row = args.source;
  if (args.source == nullptr && queries == rows && reads_fp8(cuda, args.wq_a)) down.x_fp8 = x;
  linear(cuda, down);
  LinearArgs up = linear_args(args.qr, args.wq_b, args.q);
  up.rows = queries;
  const int lora = args.wq_a.n;
  if (reads_fp8(cuda, args.wq_b) && lora % 256 == 0 && lora <= 8192) {
    up.x_fp8 = fp8_rows(scratch, queries, lora);
    rms_norm_fp8(cuda, args.qr.bf16(), queries, lora, args.q_norm, args.norm_eps, args.qr.bf16(), up.x_fp8);
  } else {
    rms_norm(cuda, args.qr.bf16(), queries, lora, args.q_norm, args.norm_eps, args.qr.bf16());
  }
  linear(cuda, up);
  launch("query rotation", rotate_heads_kernel,
         {.grid = dim3(queries), .block = dim3(256), .stream = cuda.stream(), .early = true}, args.q.bf16(), args.heads,
         args.head_dim, args.out->position, args.rope);
  latents.join();
}

}  // namespace hadal::cuda
