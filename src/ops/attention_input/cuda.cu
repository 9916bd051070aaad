#include "ops/attention_input/attention_input.h"
#include "ops/cuda/errors.h"
#include "ops/cuda/fp8_rows.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/linear_input.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/rotate.cuh"
#include "ops/cuda/row.cuh"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 4;

// Window latents, one warp a row, eight channels a lane at a time: norm, rotation, Q1, packed.
__global__ void __launch_bounds__(32 * kWarps)
    latent_kernel(const uint16_t* kv, int rows, int dim, const int32_t* position, const uint16_t* norm, float eps,
                  Rope rope, uint8_t* latent, int row_bytes, float2* angles_out) {
  extern __shared__ float2 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunks = dim / 8;
  float2* angles = shared + warp * (rope.dim / 2);
  const int row = blockIdx.x * kWarps + warp;
  if (row < rows)  // positions are there when a step begins
    for (int pair = lane; pair < rope.dim / 2; pair += 32) angles[pair] = rotation(rope, pair, position[row]);
  wait_for_previous();
  let_next_start();
  if (row >= rows) return;
  __syncwarp();
  if (angles_out != nullptr)
    for (int pair = lane; pair < rope.dim / 2; pair += 32)
      angles_out[int64_t{row} * (rope.dim / 2) + pair] = angles[pair];
  const auto* from = reinterpret_cast<const uint4*>(kv + int64_t{row} * dim);
  float sum = 0;
  for (int chunk = lane; chunk < chunks; chunk += 32) {
    float v[8];
    unpack8(from[chunk], v);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
  }
  const float rms = inverse_rms(warp_sum(sum), dim, eps);
  uint8_t* to = latent + int64_t{row} * row_bytes;
  for (int first = 0; first < chunks; first += 32) {
    const int chunk = min(first + lane, chunks - 1);  // past the end: not stored
    float v[8], w[8];
    unpack8(from[chunk], v);
    unpack8(reinterpret_cast<const uint4*>(norm)[chunk], w);
    uint4 bits;
    uint32_t* word = &bits.x;
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = pack_bf16x2(w[2 * i] * (v[2 * i] * rms), w[2 * i + 1] * (v[2 * i + 1] * rms));
    const int rotated = chunk - (chunks - rope.dim / 8);
    if (rotated >= 0) bits = rotate_pairs(bits, angles + 4 * rotated);
    unpack8(bits, v);
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 1));  // four lanes have the 32 channels of a scale
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 2));
    const uint8_t scale = q1_scale(largest);
    const float inverse = reciprocal_of_power(from_ue8m0(scale));
    if (first + lane >= chunks) continue;
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pair[i] = e4m3_pair(v[2 * i] * inverse, v[2 * i + 1] * inverse);
    const uint2 codes = {pair[0] | pair[1] << 16, pair[2] | pair[3] << 16};
    if (row_bytes % 8 == 0)
      reinterpret_cast<uint2*>(to)[chunk] = codes;
    else
      for (int i = 0; i < 8; ++i)
        to[8 * chunk + i] = static_cast<uint8_t>((i < 4 ? codes.x : codes.y) >> (8 * (i % 4)));
    if (chunk % 4 == 0) to[dim + chunk / 4] = scale;
  }
}

// Queries, in place: one CTA a row, four pairs a thread. Only the rotated channels are touched.
__global__ void __launch_bounds__(256)
    rotate_heads_kernel(uint16_t* q, int heads, int head_dim, const int32_t* position, Rope rope) {
  extern __shared__ float2 shared[];
  float2* angles = shared;
  const int64_t row = blockIdx.x;
  for (int pair = threadIdx.x; pair < rope.dim / 2; pair += blockDim.x)
    angles[pair] = rotation(rope, pair, position[row]);
  __syncthreads();
  wait_for_previous();
  let_next_start();
  const int chunks = rope.dim / 8;
  for (int i = threadIdx.x; i < heads * chunks; i += blockDim.x) {
    auto* at = reinterpret_cast<uint4*>(q + (row * heads + i / chunks + 1) * head_dim - rope.dim) + i % chunks;
    *at = rotate_pairs(*at, angles + 4 * (i % chunks));
  }
}

}  // namespace

void attention_input(Context& context, const AttentionInputArgs& args) {
  CudaContext& cuda = CudaContext::of(context);
  const int rows = args.in->rows;
  HADAL_CUDA_CHECK(args.head_dim % 32 == 0 && args.rope.dim % 8 == 0 && args.rope.dim <= args.head_dim);
  HADAL_CUDA_CHECK(args.latent.cols == static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, args.head_dim)));
  Scratch scratch(cuda);
  HADAL_CUDA_CHECK(!args.q_angles || (args.source == nullptr && args.out != nullptr && args.out->rows == rows));
  const bool queries_follow = args.out != nullptr && args.out->rows > 0;
  // In `fp8` numerics wkv and wq_a share Q4 of x, where they read the same rows.
  Fp8Rows x;
  if (rows > 0 && args.x_rounded) {
    x = fp8_rows(args.x_rounded);
  } else if (rows > 0 && wants_fp8(cuda, rows, args.wkv)) {
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
    launch("window latents", latent_kernel,
           {.grid = dim3((rows + kWarps - 1) / kWarps),
            .block = dim3(32 * kWarps),
            .shared = sizeof(float2) * kWarps * args.rope.dim / 2,
            .stream = cuda.stream(),
            .early = true},
           kv.bf16(), rows, args.head_dim, args.in->position, args.kv_norm, args.norm_eps, args.rope, args.latent.u8(),
           static_cast<int>(args.latent.cols),
           args.q_angles ? reinterpret_cast<float2*>(args.q_angles.f32()) : nullptr);
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
  if (!args.q_angles)
    launch("query rotation", rotate_heads_kernel,
           {.grid = dim3(queries),
            .block = dim3(256),
            .shared = sizeof(float2) * args.rope.dim / 2,
            .stream = cuda.stream(),
            .early = true},
           args.q.bf16(), args.heads, args.head_dim, args.out->position, args.rope);
  latents.join();
}

}  // namespace hadal::cuda
