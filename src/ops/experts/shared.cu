#include "ops/cuda/errors.h"
#include "ops/cuda/fp8_rows.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/experts/general.h"
#include "ops/experts/shared.h"

namespace hadal::cuda {
namespace {

// SwiGLU and Q4 of its result: 16 lanes a group of 128 columns.
__global__ void __launch_bounds__(256)
    swiglu_fp8_kernel(const uint16_t* gate, const uint16_t* up, float limit, Fp8Rows out) {
  wait_for_previous();
  let_next_start();
  const int groups = out.columns / 128, i = blockIdx.x * 16 + threadIdx.x / 16, lane16 = threadIdx.x % 16;
  if (i >= out.rows * groups) return;
  const int row = i / groups, group = i % groups;
  const int64_t at = int64_t{row} * out.columns + group * 128 + lane16 * 8;
  float g[8], u[8];
  unpack_bf16x8(*reinterpret_cast<const uint4*>(gate + at), g);
  unpack_bf16x8(*reinterpret_cast<const uint4*>(up + at), u);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float clamped = fminf(g[j], limit);
    g[j] = round_bf16(__fdividef(clamped, 1.0f + __expf(-clamped)) * fminf(fmaxf(u[j], -limit), limit));
  }
  store_q4(out, group, row, lane16, g);
}

}  // namespace

Fp8Rows shared_expert_rows(CudaContext& context, Scratch& scratch, const ExpertsArgs& args) {
  const FeedForward& w = args.shared;
  if (!w.w1 || !wants_fp8(context, args.rows, w.w1) || !wants_fp8(context, args.rows, w.w3)) return {};
  return fp8_rows(scratch, args.rows, w.w1.k);
}

Tensor shared_expert(CudaContext& context, Scratch& scratch, const ExpertsArgs& args, Fp8Rows x) {
  const FeedForward& w = args.shared;
  if (!w.w1) return {};
  const int rows = args.rows, width = w.w1.n;
  const size_t count = static_cast<size_t>(rows) * width;
  const Tensor gate{scratch.get<uint16_t>(count), DType::bf16, rows, width};
  const Tensor up{scratch.get<uint16_t>(count), DType::bf16, rows, width};
  const Tensor out{scratch.get<uint16_t>(static_cast<size_t>(rows) * args.x.cols), DType::bf16, rows, args.x.cols};
  // In `fp8` numerics both read the same Q4 of x, and w2 that of SwiGLU.
  if (!x) {
    x = shared_expert_rows(context, scratch, args);
    if (x) quantise_rows(context, args.x.bf16(), args.x.cols, nullptr, x);
  }
  LinearArgs to_gate = linear_args(args.x, w.w1, gate), to_up = linear_args(args.x, w.w3, up);
  to_gate.x_fp8 = to_up.x_fp8 = x;
  linear_pair(context, to_gate, to_up);
  LinearArgs down = linear_args(gate, w.w2, out);
  if (wants_fp8(context, rows, w.w2)) {
    down.x_fp8 = fp8_rows(scratch, rows, width);
    const int groups = rows * (width / 128);
    launch("swiglu_fp8", swiglu_fp8_kernel,
           {.grid = dim3((groups + 15) / 16), .block = dim3(256), .stream = context.stream(), .early = true},
           gate.bf16(), up.bf16(), args.limit, down.x_fp8);
  } else {
    swiglu(gate.bf16(), up.bf16(), gate.bf16(), static_cast<int64_t>(count), args.limit, context.stream());
  }
  linear(context, down);
  return out;
}

void begin_experts(Context& base, ExpertsArgs& args) {
  CudaContext& context = CudaContext::of(base);
  if (args.rows == 0 || args.rows > Branch::kMostRows || !args.shared.w1) return;
  Scratch scratch(context);  // lives as long as the branch
  const auto branch = std::make_shared<Branch>(context, args.rows);
  args.shared_out = shared_expert(context, scratch, args, {});
  branch->rest();
  args.begun = branch;
}

}  // namespace hadal::cuda
