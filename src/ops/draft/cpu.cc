#include "ops/draft/draft.h"

#include <cmath>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {

void draft_context(Context& any, const DraftContextArgs& args) {
  CpuContext& context = cpu_context(any);
  const int d = args.main_proj.n;
  check_tensor(args.main_hidden, DType::f32, args.rows, args.main_hidden.cols, "main_hidden");
  check_weight(args.main_proj, d, args.main_hidden.cols, "main_proj");
  check_tensor(args.main_x, DType::f32, args.rows, d, "main_x");
  Scratch scratch(context);
  const Input x = prepare(context, scratch, args.main_hidden.f32(), args.main_hidden.cols, args.rows, args.main_proj);
  multiply(
      context,
      {{.weight = &args.main_proj, .x = x, .rows = args.rows, .y = args.main_x.f32(), .y_stride = d, .round = true}});
  parallel_ranges(context, args.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      kernels(context).rms_norm(args.main_x.f32(r), args.main_norm, d, args.norm_eps, rounds(context),
                                args.main_x.f32(r));
  });
}

// fp32 in every mode: nothing is rounded.
void draft_logits(Context& any, const DraftLogitsArgs& args) {
  CpuContext& context = cpu_context(any);
  const Kernels& kernel = kernels(context);
  const int vocab = args.markov_head.n, rank = args.markov_head.k, d = static_cast<int>(args.hidden.cols);
  check_weight(args.markov_embed, vocab, rank, "markov_embed");
  check_weight(args.markov_head, vocab, rank, "markov_head");
  check_weight(args.confidence, 1, d + rank, "confidence");
  HADAL_CHECK(args.markov_embed.format == WeightFormat::bf16);
  check_tensor(args.base, DType::f32, args.rows, vocab, "base");
  check_tensor(args.hidden, DType::f32, args.rows, d, "hidden");
  check_tensor(args.logits, DType::f32, args.rows, vocab, "logits");
  check_tensor(args.probability, DType::f32, args.rows, 1, "probability");

  Scratch scratch(context);
  float* both = scratch.get<float>(int64_t{args.rows} * (d + rank));  // hidden, then the token's embedding
  for (int r = 0; r < args.rows; ++r) {
    HADAL_CHECK(args.tokens[r] >= 0 && args.tokens[r] < vocab);
    float* row = both + int64_t{r} * (d + rank);
    std::copy_n(args.hidden.f32(r), d, row);
    kernel.unpack_bf16(static_cast<const uint16_t*>(args.markov_embed.data) + int64_t{args.tokens[r]} * rank, rank,
                       row + d);
  }
  const Input x = prepare(context, scratch, both, d + rank, args.rows, d + rank, Layout::split, InputRounding::none);
  const Input embed =
      prepare(context, scratch, both + d, d + rank, args.rows, rank, Layout::split, InputRounding::none);
  multiply(context,
           {{.weight = &args.markov_head, .x = embed, .rows = args.rows, .y = args.logits.f32(), .y_stride = vocab},
            {.weight = &args.confidence, .x = x, .rows = args.rows, .y = args.probability.f32(), .y_stride = 1}});
  for (int r = 0; r < args.rows; ++r) {
    float* p = args.probability.f32(r);
    *p = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(*p))));
  }
  parallel_ranges(context, int64_t{args.rows} * vocab, 65536, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) args.logits.f32()[i] = args.base.f32()[i] + args.logits.f32()[i];
  });
}

}  // namespace hadal::cpu
