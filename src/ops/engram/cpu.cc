#include "ops/engram/engram.h"

#include <cmath>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/tables.h"
#include "ops/operators.h"

namespace hadal::cpu {

// A table row is 264 bytes somewhere in 100 GB: the loop waits for memory, so many rows are asked for at once.
void engram_gather(Context& any, const EngramGatherArgs& args) {
  CpuContext& context = cpu_context(any);
  const EngramTable& table = args.table;
  const int dim = table.dim;
  HADAL_CHECK(dim % 32 == 0);
  check_tensor(args.out, DType::f32, args.rows, int64_t{args.columns} * dim, "out");
  const int64_t count = int64_t{args.rows} * args.columns;
  parallel_ranges(context, count, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = args.index[i];
      HADAL_CHECK(row < table.table_rows);
      __builtin_prefetch(table.scales + row * (dim / 32));
      for (int c = 0; c < dim; c += 64) __builtin_prefetch(table.codes + row * dim + c);
    }
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = args.index[i];
      const uint8_t* codes = table.codes + row * dim;
      const uint8_t* scales = table.scales + row * (dim / 32);
      float* out = args.out.f32() + i * dim;
      // e4m3 has 4 significant bits: the product is on the bf16 grid as it is.
      for (int b = 0; b < dim / 32; ++b) {
        const float scale = tables.ue8m0[scales[b]];
        for (int c = 32 * b; c < 32 * b + 32; ++c) out[c] = tables.e4m3[codes[c]] * scale;
      }
    }
  });
}

void engram_apply(Context& any, const EngramApplyArgs& args) {
  CpuContext& context = cpu_context(any);
  const Kernels& kernel = kernels(context);
  const int d = args.d, copies = args.copies;
  const int64_t width = int64_t{copies + 1} * d;
  check_tensor(args.e, DType::f32, args.rows, args.e.cols, "e");
  check_weight(args.wkv, width, args.e.cols, "wkv");
  check_tensor(args.h, DType::f32, args.rows, int64_t{copies} * d, "h");
  if (args.gate) check_tensor(args.gate, DType::f32, args.rows, copies, "gate");

  Scratch scratch(context);
  float* kv = scratch.get<float>(args.rows * width);
  const Input e = prepare(context, scratch, args.e.f32(), args.e.cols, args.rows, args.wkv);
  multiply(context, {{.weight = &args.wkv, .x = e, .rows = args.rows, .y = kv, .y_stride = width, .round = true}});
  parallel_ranges(context, int64_t{args.rows} * copies, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / copies, c = i % copies;
      float* h = args.h.f32(r) + c * d;
      const float* key = kv + r * width + c * d;
      float sums[3];
      kernel.engram_sums(h, key, args.q_weight + c * d, args.k_weight + c * d, d, sums);
      double gate = 0;
      if (args.dead == nullptr || args.dead[r] == 0) {
        const double n = d, eps = args.norm_eps;
        const double dot = sums[2] / std::sqrt((sums[0] / n + eps) * (sums[1] / n + eps) * n);
        gate = 1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot)));
      }
      if (args.gate) args.gate.f32(r)[c] = static_cast<float>(gate);
      kernel.engram_add(h, kv + r * width + int64_t{copies} * d, static_cast<float>(gate), d, rounds(context));
    }
  });
}

}  // namespace hadal::cpu
