#include "ops/attention_input/attention_input.h"

#include "base/error.h"
#include "base/row_format.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {
namespace {

void check(const AttentionInputArgs& args) {
  const auto latent_bytes = static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, args.head_dim));
  const int64_t d = args.x.cols;
  check_tensor(args.x, DType::f32, args.in->rows, d, "x");
  check_weight(args.wkv, args.head_dim, d, "wkv");
  check_tensor(args.latent, DType::u8, args.in->rows, latent_bytes, "latent");
  HADAL_CHECK(args.rope.dim % 2 == 0 && args.rope.dim <= args.head_dim && args.rope.dim <= 512 &&
              args.head_dim % 32 == 0);
  if (args.out == nullptr) return;
  const int64_t width = int64_t{args.heads} * args.head_dim;
  check_weight(args.wq_a, args.wq_a.n, d, "wq_a");
  check_weight(args.wq_b, width, args.wq_a.n, "wq_b");
  check_tensor(args.qr, DType::f32, args.out->rows, args.wq_a.n, "qr");
  check_tensor(args.q, DType::f32, args.out->rows, width, "q");
}

}  // namespace

void attention_input(Context& any, const AttentionInputArgs& args) {
  CpuContext& context = cpu_context(any);
  check(args);
  const Kernels& kernel = kernels(context);
  const bool round = rounds(context);
  const int rows = args.in->rows, out_rows = args.out == nullptr ? 0 : args.out->rows;
  const int dim = args.head_dim, rotated = dim - args.rope.dim, lora = args.wq_a.n;
  if (rows == 0) return;

  Scratch scratch(context);
  float* kv = scratch.get<float>(int64_t{rows} * dim);
  // Both weights read x; they share it unless their formats want it differently.
  const Input x = prepare(context, scratch, args.x.f32(), args.x.cols, rows, args.wkv);
  const bool same = out_rows == 0 || (layout_of(context, args.wq_a) == x.layout &&
                                      input_rounding(context, args.wq_a) == input_rounding(context, args.wkv));
  const Input xq = same ? x : prepare(context, scratch, args.x.f32(), args.x.cols, rows, args.wq_a);
  multiply(context, {{.weight = &args.wkv, .x = x, .rows = rows, .y = kv, .y_stride = dim, .round = true},
                     {.weight = &args.wq_a,
                      .x = xq,
                      .x_index = args.source,
                      .rows = out_rows,
                      .y = args.qr.f32(),
                      .y_stride = lora,
                      .round = true}});

  context.pool().parallel_for(rows + out_rows, [&](int i) {
    if (i >= rows) {
      float* qr = args.qr.f32(i - rows);
      kernel.rms_norm(qr, args.q_norm, lora, args.norm_eps, round, qr);
      return;
    }
    float* row = kv + int64_t{i} * dim;
    float turn[512];
    cos_sin(args.rope, args.in->position[i], turn);
    kernel.rms_norm(row, args.kv_norm, dim, args.norm_eps, round, row);
    kernel.rotate(row + rotated, turn, args.rope.dim, false, round);
    pack_row(RowFormat::fp8_ue8m0_32, row, dim, args.latent.u8(i));
  });
  if (out_rows == 0) return;

  const Input qr = prepare(context, scratch, args.qr.f32(), lora, out_rows, args.wq_b);
  multiply(
      context,
      {{.weight = &args.wq_b, .x = qr, .rows = out_rows, .y = args.q.f32(), .y_stride = args.q.cols, .round = true}});
  parallel_ranges(context, out_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float turn[512];
      cos_sin(args.rope, args.out->position[r], turn);
      for (int head = 0; head < args.heads; ++head)
        kernel.rotate(args.q.f32(r) + int64_t{head} * dim + rotated, turn, args.rope.dim, false, round);
    }
  });
}

}  // namespace hadal::cpu
