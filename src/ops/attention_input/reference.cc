// The projections in front of attention.      spec 3.3
#include "ops/attention_input/attention_input.h"

#include <algorithm>

#include "ops/attention_input/reference.h"
#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

std::vector<float> window_latents(Numerics numerics, const AttentionInputArgs& args) {
  std::vector<float> kv = linear(numerics, args.wkv, args.x.f32(), args.in->rows, args.x.cols);
  for (int r = 0; r < args.in->rows; ++r) {
    float* row = kv.data() + int64_t{r} * args.head_dim;
    rms_norm(numerics, row, args.kv_norm, args.head_dim, args.norm_eps);
    rotate(numerics, args.rope, row, args.head_dim, args.in->position[r]);
  }
  return kv;
}

namespace {

void queries(Numerics numerics, const AttentionInputArgs& args) {
  const int rows = args.out->rows;
  const int64_t d = args.x.cols, q_lora = args.wq_a.n, width = int64_t{args.heads} * args.head_dim;

  std::vector<float> x(rows * d);
  for (int r = 0; r < rows; ++r) std::copy_n(args.x.f32(mapped(args.source, r)), d, x.data() + r * d);

  std::vector<float> qr = linear(numerics, args.wq_a, x.data(), rows, d);
  for (int r = 0; r < rows; ++r) rms_norm(numerics, qr.data() + r * q_lora, args.q_norm, q_lora, args.norm_eps);

  std::vector<float> q = linear(numerics, args.wq_b, qr.data(), rows, q_lora);
  for (int r = 0; r < rows; ++r)
    for (int head = 0; head < args.heads; ++head)
      rotate(numerics, args.rope, q.data() + r * width + int64_t{head} * args.head_dim, args.head_dim,
             args.out->position[r]);

  std::copy(qr.begin(), qr.end(), args.qr.f32());
  std::copy(q.begin(), q.end(), args.q.f32());
}

}  // namespace

void attention_input(Context& context, const AttentionInputArgs& args) {
  const auto latent_bytes = static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, args.head_dim));
  check_shape(args.x, DType::f32, args.in->rows, args.x.cols, "x");
  check_weight(args.wkv, args.head_dim, args.x.cols, "wkv");
  check_shape(args.latent, DType::u8, args.in->rows, latent_bytes, "latent");

  const std::vector<float> kv = window_latents(context.numerics(), args);
  for (int r = 0; r < args.in->rows; ++r)
    pack_row(RowFormat::fp8_ue8m0_32, kv.data() + int64_t{r} * args.head_dim, args.head_dim, args.latent.u8(r));

  if (args.out == nullptr) return;
  check_weight(args.wq_a, args.wq_a.n, args.x.cols, "wq_a");
  check_weight(args.wq_b, int64_t{args.heads} * args.head_dim, args.wq_a.n, "wq_b");
  check_shape(args.qr, DType::f32, args.out->rows, args.wq_a.n, "qr");
  check_shape(args.q, DType::f32, args.out->rows, int64_t{args.heads} * args.head_dim, "q");
  queries(context.numerics(), args);
}

}  // namespace hadal::reference
