// Engram: table rows, and their gated addition into the residual copies.      spec 3.9
#include "ops/engram/engram.h"

#include <algorithm>

#include "ops/engram/reference.h"
#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

double engram_gate(double dot) { return sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot)); }

// Row i of the table: e4m3(codes[i, c]) * ue8m0(scales[i, c / 32]), spec 2.3.
void engram_gather(Context& context, const EngramGatherArgs& args) {
  const EngramTable& table = args.table;
  HADAL_CHECK(table.dim % 32 == 0);
  check_shape(args.out, DType::f32, args.rows, int64_t{args.columns} * table.dim, "out");

  for (int r = 0; r < args.rows; ++r) {
    for (int column = 0; column < args.columns; ++column) {
      const int64_t row = args.index[int64_t{r} * args.columns + column];
      HADAL_CHECK(row < table.table_rows);
      float* out = args.out.f32(r) + int64_t{column} * table.dim;
      for (int c = 0; c < table.dim; ++c) {
        const float scale = from_ue8m0(table.scales[row * (table.dim / 32) + c / 32]);
        out[c] = hadal::round_activation(context.numerics(), from_e4m3(table.codes[row * table.dim + c]) * scale);
      }
    }
  }
}

void engram_apply(Context& context, const EngramApplyArgs& args) {
  const Numerics numerics = context.numerics();
  const int64_t d = args.d;
  check_shape(args.e, DType::f32, args.rows, args.e.cols, "e");
  check_weight(args.wkv, (args.copies + 1) * d, args.e.cols, "wkv");
  check_shape(args.h, DType::f32, args.rows, args.copies * d, "h");
  if (args.gate) check_shape(args.gate, DType::f32, args.rows, args.copies, "gate");

  const std::vector<float> kv = linear(numerics, args.wkv, args.e.f32(), args.rows, args.e.cols);
  for (int r = 0; r < args.rows; ++r) {
    const float* keys = kv.data() + r * (args.copies + 1) * d;
    const float* value = keys + args.copies * d;
    const bool dead = args.dead != nullptr && args.dead[r] != 0;
    for (int c = 0; c < args.copies; ++c) {
      float* h = args.h.f32(r) + c * d;
      const float* key = keys + c * d;
      double product = 0;
      for (int64_t i = 0; i < d; ++i) {
        const double weight =
            static_cast<double>(from_bf16(args.q_weight[c * d + i])) * from_bf16(args.k_weight[c * d + i]);
        product += h[i] * weight * key[i];
      }
      const double scale = inverse_rms(h, d, args.norm_eps) * inverse_rms(key, d, args.norm_eps);
      const double gate = dead ? 0 : engram_gate(product * scale / std::sqrt(static_cast<double>(d)));
      if (args.gate) args.gate.f32(r)[c] = static_cast<float>(gate);
      for (int64_t i = 0; i < d; ++i) h[i] = round_activation(numerics, h[i] + gate * value[i]);
    }
  }
}

}  // namespace hadal::reference
