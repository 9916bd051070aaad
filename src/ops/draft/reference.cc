// What only the draft module needs.      spec 5.1, 5.2
#include "ops/draft/draft.h"

#include <algorithm>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

void draft_context(Context& context, const DraftContextArgs& args) {
  const int64_t d = args.main_proj.n;
  check_shape(args.main_hidden, DType::f32, args.rows, args.main_hidden.cols, "main_hidden");
  check_weight(args.main_proj, d, args.main_hidden.cols, "main_proj");
  check_shape(args.main_x, DType::f32, args.rows, d, "main_x");

  std::vector<float> x =
      linear(context.numerics(), args.main_proj, args.main_hidden.f32(), args.rows, args.main_hidden.cols);
  for (int r = 0; r < args.rows; ++r) rms_norm(context.numerics(), x.data() + r * d, args.main_norm, d, args.norm_eps);
  std::copy(x.begin(), x.end(), args.main_x.f32());
}

void draft_logits(Context& context, const DraftLogitsArgs& args) {
  (void)context;  // fp32 in every mode: nothing is rounded
  const int64_t vocab = args.markov_head.n, rank = args.markov_head.k, d = args.hidden.cols;
  check_weight(args.markov_embed, vocab, rank, "markov_embed");
  check_weight(args.markov_head, vocab, rank, "markov_head");
  check_weight(args.confidence, 1, d + rank, "confidence");
  check_shape(args.base, DType::f32, args.rows, vocab, "base");
  check_shape(args.hidden, DType::f32, args.rows, d, "hidden");
  check_shape(args.logits, DType::f32, args.rows, vocab, "logits");
  check_shape(args.probability, DType::f32, args.rows, 1, "probability");

  const Row confidence = weight_row(args.confidence, 0);
  for (int r = 0; r < args.rows; ++r) {
    HADAL_CHECK(args.tokens[r] >= 0 && args.tokens[r] < vocab);
    const Row embed = weight_row(args.markov_embed, args.tokens[r]);
    for (int64_t v = 0; v < vocab; ++v)
      args.logits.f32(r)[v] =
          static_cast<float>(args.base.f32(r)[v] + dot(weight_row(args.markov_head, v).data(), embed.data(), rank));
    const double logit = dot(confidence.data(), args.hidden.f32(r), d) + dot(confidence.data() + d, embed.data(), rank);
    *args.probability.f32(r) = static_cast<float>(sigmoid(logit));
  }
}

}  // namespace hadal::reference
