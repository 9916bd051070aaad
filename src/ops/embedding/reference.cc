// Embedding rows into the residual copies.      spec 3.2
#include "ops/embedding/embedding.h"

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

void embedding(Context& context, const EmbeddingArgs& args) {
  (void)context;  // embedding values are on the bf16 grid: nothing is rounded in any mode
  const int64_t rows = args.h.rows, d = args.embed.k, copies = args.pre.cols;
  check_weight(args.embed, args.embed.n, d, "embed");
  check_shape(args.h, DType::f32, rows, copies * d, "h");
  check_shape(args.pre, DType::f32, rows, copies, "pre");

  for (int64_t r = 0; r < rows; ++r) {
    const int32_t token = args.tokens[r];
    HADAL_CHECK(token >= 0 && token < args.embed.n);
    const Row row = weight_row(args.embed, token);
    for (int64_t j = 0; j < copies; ++j) {
      for (int64_t i = 0; i < d; ++i) args.h.f32(r)[j * d + i] = row[i];
      args.pre.f32(r)[j] = j == 0 ? 1.0f : 0.0f;
    }
  }
}

}  // namespace hadal::reference
