// DSpark: the draft module's conditioning and one draft step.      spec 5
#include <cmath>

#include "base/error.h"
#include "models/deepseek_v41/model.h"
#include "models/deepseek_v41/residual.h"

namespace hadal::deepseek_v41 {
namespace {

int64_t latent_bytes(const V41Config& c) {
  return static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, c.head_dim));
}

}  // namespace

// Every stage keeps its own latents of verified positions, made from the taps of the backbone. The stage's attn_norm is
// not applied to them.
void Model::condition_drafts(StepPlan& plan, const Tensor& main_hidden, Step& step, const Observer& observe) {
  const V41Config& c = config_;
  const RowSet& rows = plan.draft();
  for (int s = 0; s < c.draft_stages(); ++s)
    step.draft_latents.push_back(context_.tensor(rows.rows, latent_bytes(c), DType::u8));
  if (rows.rows == 0) return;
  const StepScratch scratch(context_);
  const Tensor main_x = context_.activations(rows.rows, c.hidden_size);
  op_.draft_context(context_, {rows.rows, static_cast<float>(c.rms_norm_eps), main_hidden, weights_.draft.main_proj,
                               weights_.draft.main_norm, main_x});
  if (observe) {
    observe("main_hidden", c.layers(), main_hidden);
    observe("main_x", c.layers(), main_x);
  }
  for (int s = 0; s < c.draft_stages(); ++s) {
    const AttentionWeights& w = weights_.draft.stages[static_cast<size_t>(s)].attention;
    AttentionInputArgs a;
    a.x = main_x;
    a.in = &rows;
    a.heads = c.num_attention_heads;
    a.head_dim = c.head_dim;
    a.norm_eps = static_cast<float>(c.rms_norm_eps);
    a.rope = rope(0);
    a.wkv = w.wkv;
    a.kv_norm = w.kv_norm;
    a.latent = step.draft_latents[static_cast<size_t>(s)];
    op_.attention_input(context_, a);
    if (observe) observe("ring_kv", s, a.latent);
  }
}

Drafts Model::draft(std::span<RequestState* const> states, std::span<const int32_t> anchors, const Observer& observe) {
  const V41Config& c = config_;
  HADAL_CHECK(c.draft_stages() > 0 && !states.empty() && states.size() == anchors.size());
  // The draft rows are a proposal that is never committed: positions, ring and slot come from the same plan as in any step.
  std::vector<int32_t> ids(static_cast<size_t>(c.dspark_block_size), c.dspark_noise_token_id);
  std::vector<SegmentRequest> requests;
  for (size_t s = 0; s < states.size(); ++s) {
    ids[0] = anchors[s];
    states[s]->propose(ids);
    requests.push_back({states[s], LogitsWanted::all});
  }
  StepPlan plan(context_, {c.draft_stages(), c.sliding_window, c.draft_stages()}, requests);
  for (RequestState* state : states) state->rollback();
  const RowSet& rows = plan.all();
  const CachePools& pools = states[0]->pools();

  Drafts drafts;
  drafts.block = c.dspark_block_size;
  drafts.hidden = context_.activations(rows.rows, c.hidden_size);
  drafts.base = context_.tensor(rows.rows, c.vocab_size, DType::f32);

  const HyperConnectionShape shape{c.hc_mult, c.hidden_size, c.hc_sinkhorn_iters, static_cast<float>(c.hc_eps),
                                   static_cast<float>(c.rms_norm_eps)};
  Residual residual(context_, op_, shape, plan);
  residual.embed(weights_.embed);
  for (int stage = 0; stage < c.draft_stages(); ++stage) {
    const BlockWeights& w = weights_.draft.stages[static_cast<size_t>(stage)];
    const Tensor x = residual.enter(w.attn_mix, w.attn_norm, rows);
    {
      const StepScratch scratch(context_);
      AttentionInputArgs p;
      p.x = x;
      p.in = p.out = &rows;
      p.heads = c.num_attention_heads;
      p.head_dim = c.head_dim;
      p.norm_eps = shape.norm_eps;
      p.rope = rope(0);
      p.wkv = w.attention.wkv;
      p.kv_norm = w.attention.kv_norm;
      p.wq_a = w.attention.wq_a;
      p.q_norm = w.attention.q_norm;
      p.wq_b = w.attention.wq_b;
      p.latent = context_.tensor(rows.rows, latent_bytes(c), DType::u8);
      p.qr = context_.activations(rows.rows, c.q_lora_rank);
      p.q = context_.activations(rows.rows, static_cast<int64_t>(c.num_attention_heads) * c.head_dim);
      op_.attention_input(context_, p);

      SparseAttentionArgs s;
      s.in = s.out = &rows;
      s.segments = &plan.segments();
      s.heads = c.num_attention_heads;
      s.head_dim = c.head_dim;
      s.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
      s.rope = rope(0);
      s.sink = w.attention.sink;
      s.q = p.q;
      s.latent = p.latent;
      s.ring = pools.draft_ring(stage);
      s.bidirectional = true;
      s.o = linear_input(op_, context_, rows.rows, w.attention.wo_a, c.o_groups);
      op_.sparse_attention(context_, s);
      op_.attention_output(context_,
                           {rows.rows, c.o_groups, s.o, w.attention.wo_a, w.attention.wo_b, residual.output(rows)});
    }
    const Tensor x_ffn = residual.enter(w.ffn_mix, w.ffn_norm, rows);
    moe(w.moe, rows, c.dspark_num_experts_per_tok, nullptr, x_ffn, residual.output(rows), stage, {});
    if (observe) {
      residual.flush(rows);
      observe("draft_h_out", stage, residual.h());
    }
  }
  const Tensor x = residual.finish(weights_.draft.norm, rows, drafts.hidden);
  op_.head(context_, {rows.rows, x, weights_.head, drafts.base});
  return drafts;
}

void Model::draft_logits(const Drafts& drafts, int row, int32_t previous, const DraftLogits& out) {
  const DraftWeights& w = weights_.draft;
  op_.draft_logits(
      context_, {1, context_.upload(std::span<const int32_t>(&previous, 1)), row_of(drafts.base, row),
                 row_of(drafts.hidden, row), w.markov_embed, w.markov_head, w.confidence, out.logits, out.probability});
}

std::vector<int32_t> Model::sample(const Tensor& logits, std::span<const SampleRow> rows) {
  std::vector<int32_t> tokens(rows.size());
  if (rows.empty()) return tokens;
  const StepScratch scratch(context_);
  const Tensor chosen = context_.tensor(static_cast<int64_t>(rows.size()), 1, DType::i32);
  op_.sample(context_, {static_cast<int>(rows.size()), context_.upload(rows), logits, chosen});
  context_.download(tokens.data(), chosen.data, tokens.size() * sizeof(int32_t));
  return tokens;
}

}  // namespace hadal::deepseek_v41
