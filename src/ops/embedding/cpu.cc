#include "ops/embedding/embedding.h"

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {

void embedding(Context& any, const EmbeddingArgs& args) {
  CpuContext& context = cpu_context(any);
  const int64_t rows = args.h.rows, copies = args.pre.cols;
  const int d = args.embed.k;
  HADAL_CHECK(args.embed.format == WeightFormat::bf16);
  check_weight(args.embed, args.embed.n, d, "embed");
  check_tensor(args.h, DType::f32, rows, copies * d, "h");
  check_tensor(args.pre, DType::f32, rows, copies, "pre");
  const Kernels& kernel = kernels(context);
  parallel_ranges(context, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t token = args.tokens[r];
      HADAL_CHECK(token >= 0 && token < args.embed.n);
      float* h = args.h.f32(r);
      kernel.unpack_bf16(static_cast<const uint16_t*>(args.embed.data) + int64_t{token} * d, d, h);
      for (int64_t j = 1; j < copies; ++j) std::copy_n(h, d, h + j * d);
      for (int64_t j = 0; j < copies; ++j) args.pre.f32(r)[j] = j == 0 ? 1.0f : 0.0f;
    }
  });
}

}  // namespace hadal::cpu
