#include "models/deepseek_v41/cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace hadal::deepseek_v41 {
namespace {

double weight_bytes(WeightFormat format, double count) {
  switch (format) {
    case WeightFormat::f32: return 4 * count;
    case WeightFormat::bf16: return 2 * count;
    case WeightFormat::fp8_block32: return count * (1 + 1.0 / 1024);
    case WeightFormat::mxfp4: return count * (0.5 + 1.0 / 32);
  }
  return 0;
}

class Counter {
 public:
  Counter(const V41Config& config, const StepPlan& plan, const CostOptions& options)
      : c_(config), plan_(plan), options_(options), a_(options.activation_bytes), d_(config.hidden_size) {}

  std::vector<CallCost> count() {
    const double n = plan_.rows();
    add(OperatorId::embedding, {0, n * d_ * (2 + c_.hc_mult * a_)});  // embedding
    rows_ = n;
    for (int l = 0; l < c_.layers() && plan_.in(l).rows > 0; ++l) layer(l);
    if (plan_.logits().rows > 0) hyper_connection(plan_.logits().rows, 0, a_);
    const double logits = plan_.logits().rows, vocab = c_.vocab_size;
    if (logits > 0)
      add(OperatorId::head,
          {2 * logits * vocab * d_, weight_bytes(WeightFormat::bf16, vocab * d_) + logits * (d_ * a_ + 4 * vocab)});
    condition_drafts();
    return std::move(calls_);
  }

 private:
  void add(OperatorId op, const Cost& cost) { calls_.push_back({op, cost}); }

  // Of linears with FP8 or MXFP4 weights.
  Cost quantised(double flops, double bytes) const {
    return options_.products8 ? Cost{0, bytes, flops} : Cost{flops, bytes};
  }

  void layer(int l) {
    const double in = plan_.in(l).rows, out = plan_.out(l).rows;
    const bool has_engram = c_.engram_index(l) >= 0;
    const auto& taps = c_.dspark_target_layer_ids;
    if (has_engram || std::find(taps.begin(), taps.end(), l) != taps.end()) hyper_connection(in, 0, 0);
    if (has_engram) engram(in);
    // With 8-bit products what linears alone read is rounded on the way: codes, and one float for 128 of them.
    const bool x_too = c_.is_kv_source(l) || (out > 0 && (c_.is_index_source(l) || out != in));
    const double rounded = options_.products8 ? kRounded : 0;
    hyper_connection(in, c_.hc_mix(), rounded + (x_too || rounded == 0 ? a_ : 0));
    attention_input(in, out);
    if (c_.is_kv_source(l)) compressor(in, c_.ratio(l));
    if (out == 0) return;
    look(l);
    if (c_.is_index_source(l)) indexer(out);
    sparse_attention(in, out);
    attention_output(out);
    pending_ = true;
    hyper_connection(out, c_.hc_mix(), a_);
    const double experts = c_.n_routed_experts;
    add(OperatorId::router, {2 * out * d_ * experts, weight_bytes(WeightFormat::bf16, experts * d_) + out * d_ * a_});
    expert_rows(out);
    pending_ = true;
  }

  // The draft module's own latents of all rows that stay, made in every step.
  void condition_drafts() {
    const double rows = plan_.draft().rows, taps = static_cast<double>(c_.dspark_target_layer_ids.size());
    if (rows == 0 || c_.draft_stages() == 0) return;
    for (double tap = 0; tap < taps; ++tap) add(OperatorId::tap, {0, rows * d_ * a_ * (c_.hc_mult + 1.0)});
    add(OperatorId::draft_context,
        quantised(2 * rows * taps * d_ * d_,
                  weight_bytes(WeightFormat::fp8_block32, taps * d_ * d_) + rows * d_ * a_ * (taps + 1)));
    for (int s = 0; s < c_.draft_stages(); ++s) attention_input(rows, 0);
  }

  // Copies are read, and the sub-layer's output where one is pending; they are written where that or fewer rows than before
  // change them, and the next input, of so many bytes a value.
  void hyper_connection(double rows, double mix, double input_bytes) {
    const double copies = c_.hc_mult;
    const bool changed = pending_ || rows != rows_, read = changed || input_bytes > 0;
    add(OperatorId::hyper_connection,
        {2 * rows * mix * copies * d_, weight_bytes(WeightFormat::f32, mix * copies * d_) +
                                           rows * d_ * (a_ * (copies * (read + changed) + pending_) + input_bytes)});
    pending_ = false;
    rows_ = rows;
  }

  void engram(double rows) {
    const double columns = c_.engram_columns(), dim = c_.engram_head_dim, copies = c_.hc_mult;
    const double gathered = columns * dim * (options_.products8 ? kRounded : a_);  // rounded on the way
    add(OperatorId::engram_gather, {0, rows * (columns * dim * (1 + 1.0 / 32) + gathered)});
    const double weights = (copies + 1) * d_ * columns * dim;
    add(OperatorId::engram_apply, quantised(2 * rows * weights, weight_bytes(WeightFormat::fp8_block32, weights) +
                                                                    rows * (gathered + 2 * copies * d_ * a_)));
  }

  void attention_input(double in, double out) {
    const double dim = c_.head_dim, lora = c_.q_lora_rank, q = c_.num_attention_heads * dim;
    const double kv = d_ * dim, wq = d_ * lora + lora * q;
    const auto latent = static_cast<double>(row_bytes(RowFormat::fp8_ue8m0_32, c_.head_dim));
    add(OperatorId::attention_input,
        quantised(2 * (in * kv + out * wq), weight_bytes(WeightFormat::fp8_block32, kv + (out > 0 ? wq : 0)) +
                                                in * (d_ * a_ + latent) + out * a_ * (lora + q)));
  }

  void attention_output(double out) {
    const double o = static_cast<double>(c_.num_attention_heads) * c_.head_dim, lora = c_.o_lora_rank;
    const double weights = lora * o + d_ * c_.o_groups * lora;
    add(OperatorId::attention_output,
        quantised(2 * out * weights, weight_bytes(WeightFormat::fp8_block32, weights) + out * a_ * (o + d_)));
  }

  void compressor(double in, int ratio) {
    const double dim = c_.head_dim, index = c_.index_head_dim, groups = in / ratio, sides = ratio > 1 ? 2 : 1;
    add(OperatorId::compressor,
        {2 * in * d_ * dim * sides + 2 * groups * dim * index,
         weight_bytes(WeightFormat::bf16, d_ * dim * sides + dim * index) + in * (d_ * a_ + (ratio > 1 ? 8 * dim : 0)) +
             groups * static_cast<double>(row_bytes(RowFormat::fp4_e4m3_16, c_.head_dim) +
                                          row_bytes(RowFormat::fp4_ue8m0_32, c_.index_head_dim))});
  }

  // What the rows of a layer look at.
  void look(int l) {
    const int ratio = c_.ratio(l);
    const bool filter = l > c_.candidate_source_layer_id && c_.candidate_source_layer_id >= 0 && ratio > 0 &&
                        c_.kv_source_of(l) == c_.candidate_source_layer_id;
    scored_ = selected_ = window_ = 0;
    scored_rows_ = selected_rows_ = window_rows_ = 0;
    const auto finish = [&](double scored, double selected, double window, int64_t visible, int64_t before) {
      scored_ += scored;
      selected_ += selected;
      window_ += window;
      scored_rows_ += std::min(scored, static_cast<double>(visible));
      selected_rows_ += std::min(selected, static_cast<double>(visible));
      window_rows_ += static_cast<double>(std::min<int64_t>(before, c_.sliding_window));
    };
    const RowSet& out = plan_.out(l);
    double scored = 0, selected = 0, window = 0;
    int64_t visible = 0;
    int segment = -1;
    for (const int32_t r : plan_.step_rows(out)) {
      const int s = plan_.segment_of(r);
      if (s != segment && segment >= 0) {
        finish(scored, selected, window, visible, plan_.requests()[static_cast<size_t>(segment)].state->length());
        scored = selected = window = 0;
      }
      segment = s;
      const int64_t p = plan_.position_of(r);
      window += static_cast<double>(std::min<int64_t>(p + 1, c_.sliding_window));
      if (ratio == 0) continue;
      visible = (p + 1) / ratio;
      const int64_t candidates = int64_t{c_.candidate_topk_blocks} * c_.candidate_block_size;
      scored += static_cast<double>(filter ? std::min(visible, candidates) : visible);
      selected += static_cast<double>(std::min<int64_t>(visible, c_.index_topk));
    }
    if (segment >= 0)
      finish(scored, selected, window, visible, plan_.requests()[static_cast<size_t>(segment)].state->length());
  }

  void indexer(double out) {
    const double q = static_cast<double>(c_.index_n_heads) * c_.index_head_dim, lora = c_.q_lora_rank,
                 heads = c_.index_n_heads;
    add(OperatorId::indexer,
        {2 * out * (lora * q + d_ * heads) + 2 * q * scored_,
         weight_bytes(WeightFormat::fp8_block32, lora * q) + weight_bytes(WeightFormat::bf16, d_ * heads) +
             out * (a_ * (lora + d_) + 4.0 * c_.index_topk) +
             scored_rows_ * static_cast<double>(row_bytes(RowFormat::fp4_ue8m0_32, c_.index_head_dim))});
  }

  void sparse_attention(double in, double out) {
    const double q = static_cast<double>(c_.num_attention_heads) * c_.head_dim;
    add(OperatorId::sparse_attention,
        {4 * q * (window_ + selected_),
         2 * out * q * a_ + 4 * selected_ +
             (in + window_rows_) * static_cast<double>(row_bytes(RowFormat::fp8_ue8m0_32, c_.head_dim)) +
             selected_rows_ * static_cast<double>(row_bytes(RowFormat::fp4_e4m3_16, c_.head_dim))});
  }

  void expert_rows(double rows) {
    const double one = 3 * d_ * c_.moe_intermediate_size, topk = c_.num_experts_per_tok;
    const double experts = options_.local_experts > 0 ? options_.local_experts : c_.n_routed_experts;
    const double used = experts * (1 - std::pow(1 - topk / experts, rows));
    add(OperatorId::experts,
        quantised(2 * one * rows * (topk + 1), used * weight_bytes(WeightFormat::mxfp4, one) +
                                                   weight_bytes(WeightFormat::fp8_block32, one) + 2 * rows * d_ * a_));
  }

  static constexpr double kRounded = 1 + 4.0 / 128;  // bytes of a value of Q4

  const V41Config& c_;
  const StepPlan& plan_;
  const CostOptions& options_;
  const double a_, d_;
  std::vector<CallCost> calls_;
  double rows_ = 0;                                               // that the copies have, and
  bool pending_ = false;                                          // whether the output of a sub-layer is to be added
  double scored_ = 0, selected_ = 0, window_ = 0;                 // keys of all rows
  double scored_rows_ = 0, selected_rows_ = 0, window_rows_ = 0;  // different ones
};

}  // namespace

std::string_view to_string(Stage stage) {
  constexpr std::string_view names[] = {
      "sparse attention", "indexer, top-k",    "compressor", "experts", "dense projections",
      "router",           "hyper-connections", "Engram",     "head",    "other"};
  static_assert(std::size(names) == kStages);
  return names[static_cast<size_t>(stage)];
}

Stage stage_of(OperatorId op) {
  switch (op) {
    case OperatorId::sparse_attention: return Stage::sparse_attention;
    case OperatorId::indexer: return Stage::indexer;
    case OperatorId::compressor: return Stage::compressor;
    case OperatorId::experts: return Stage::experts;
    case OperatorId::attention_input:
    case OperatorId::attention_output: return Stage::dense;
    case OperatorId::router: return Stage::router;
    case OperatorId::hyper_connection: return Stage::hyper_connections;
    case OperatorId::engram_gather:
    case OperatorId::engram_apply: return Stage::engram;
    case OperatorId::head: return Stage::head;
    case OperatorId::embedding:
    case OperatorId::tap:
    case OperatorId::draft_context:
    case OperatorId::sample:
    case OperatorId::draft_logits:
    case OperatorId::cache_commit: return Stage::other;
  }
  fail(ErrorKind::internal, "unknown operator {}", static_cast<int>(op));
}

double Roof::seconds(const Cost& cost) const {
  const double products = cost.flops / flops_per_second + (cost.flops8 > 0 ? cost.flops8 / flops8_per_second : 0);
  return std::max(products, cost.bytes / bytes_per_second);
}

std::vector<CallCost> call_costs(const V41Config& config, const StepPlan& plan, const CostOptions& options) {
  return Counter(config, plan, options).count();
}

std::array<StageCost, kStages> step_cost(const V41Config& config, const StepPlan& plan, const CostOptions& options,
                                         const Roof& roof) {
  std::array<StageCost, kStages> stages;
  for (const auto& [op, cost] : call_costs(config, plan, options)) {
    StageCost& s = stages[static_cast<size_t>(stage_of(op))];
    s.sum.flops += cost.flops;
    s.sum.flops8 += cost.flops8;
    s.sum.bytes += cost.bytes;
    s.seconds += roof.seconds(cost);
  }
  return stages;
}

}  // namespace hadal::deepseek_v41
