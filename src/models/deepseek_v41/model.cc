#include "models/deepseek_v41/model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/deepseek_v41/recorded_steps.h"
#include "models/deepseek_v41/residual.h"
#include "models/deepseek_v41/rope.h"

namespace hadal::deepseek_v41 {

// What index-source layers publish and the layers after them read.
struct Model::Published {
  Selection selection;
  Candidates candidates;
  // Between two owners: their layers lie behind each other, so that one piece of memory serves all owners in turn.
  SharedEntries shared;
  bool shares = false;  // the present owner's layers do
};

namespace {

std::span<const int32_t> required_token_map(const Checkpoint& checkpoint) {
  if (!checkpoint.config().engram_layer_ids.empty() && checkpoint.engram_token_map().empty())
    fail(ErrorKind::invalid_data,
         "{} has Engram layers but no engram_token_map.npy, and the map cannot be derived without a tokenizer",
         checkpoint.directory().string());
  return checkpoint.engram_token_map();
}

}  // namespace

Model::Model(const Checkpoint& checkpoint, Context& context, const Operators& operators)
    : Model(checkpoint.config(), bind_weights(checkpoint, context, operators), required_token_map(checkpoint), context,
            operators) {}

Model::Model(const V41Config& config, ModelWeights weights, std::span<const int32_t> engram_token_map, Context& context,
             const Operators& operators)
    : config_(config),
      context_(context),
      op_(operators),
      weights_(std::move(weights)),
      recorded_(std::make_unique<RecordedSteps>(context)) {
  const auto place = [&](const std::vector<float>& v) {
    return static_cast<const float*>(context.place_weight(v.data(), v.size() * sizeof(float)));
  };
  rope_main_host_ = inverse_frequencies(config_.rope_theta, config_.qk_rope_head_dim);
  rope_compressed_host_ =
      yarn_inverse_frequencies(config_.compress_rope_theta, config_.qk_rope_head_dim, config_.rope_scaling);
  rope_main_ = place(rope_main_host_);
  rope_compressed_ = place(rope_compressed_host_);
  if (!config_.engram_layer_ids.empty()) engram_hash_ = std::make_unique<EngramHash>(config_, engram_token_map);
}

Model::~Model() = default;

int64_t Model::prepared() const { return recorded_->prepared(); }
int64_t Model::recorded() const { return recorded_->recorded(); }
int64_t Model::replays() const { return recorded_->replays(); }

CacheLayout Model::cache_layout() const {
  CacheLayout layout;
  layout.layers = config_.layers();
  layout.draft_stages = config_.draft_stages();
  layout.window = config_.sliding_window;
  layout.head_dim = config_.head_dim;
  layout.index_dim = config_.index_head_dim;
  for (const int l : config_.kv_source_layer_ids) layout.owners.push_back({l, config_.ratio(l)});
  return layout;
}

int64_t Model::host_table_bytes() const {
  int64_t bytes = 0;
  for (const EngramWeights& e : weights_.engrams)
    if (e.table.on_host) bytes += e.table.table_rows * (e.table.dim + e.table.dim / 32);
  return bytes;
}

StepShape Model::step_shape() const {
  return {config_.layers(), config_.sliding_window, config_.first_decoder_layer(),
          buckets_.sizes.empty() ? nullptr : &buckets_};
}

Rope Model::rope(int ratio) const { return {ratio > 0 ? rope_compressed_ : rope_main_, config_.qk_rope_head_dim}; }

namespace {

HyperConnectionShape residual_shape(const V41Config& c) {
  return {c.hc_mult, c.hidden_size, c.hc_sinkhorn_iters, static_cast<float>(c.hc_eps),
          static_cast<float>(c.rms_norm_eps)};
}

int index_of(const std::vector<int>& list, int value) {
  return static_cast<int>(std::find(list.begin(), list.end(), value) - list.begin());
}

void see(const Observer& observe, std::string_view what, int layer, const Tensor& value) {
  if (observe && value) observe(what, layer, value);
}

}  // namespace

bool Model::recordable(const StepPlan& plan) {
  // With more rows operators take so long that giving them one by one costs nothing (docs/performance.md).
  constexpr int kMostRows = 1024;
  return records() && (plan.uniform() || plan.rows() <= kMostRows) && !has_images(plan);
}

// Those that the layers ask for, so that a recording finds them.
void Model::make_maps(StepPlan& plan) const {
  const RowSet* rows = &plan.all();
  for (int l = 0; l < config_.layers() && plan.in(l).rows > 0; ++l) {
    const RowSet &in = plan.in(l), &out = plan.out(l);
    plan.map(*rows, in);
    plan.map(in, out);
    const auto& taps = config_.dspark_target_layer_ids;
    if (plan.draft().rows > 0 && std::find(taps.begin(), taps.end(), l) != taps.end()) plan.map(in, plan.draft());
    rows = &out;
  }
  if (plan.logits().rows > 0) plan.map(*rows, plan.logits());
}

Step Model::forward(StepPlan& plan, const Observer& observe) {
  if (!observe && recordable(plan))
    return forward_recorded(plan, [this](auto key, const auto& work) { return recorded_->run(std::move(key), work); });
  return run(plan, upload_engram_index(plan), observe);
}

// All that comes from the host is uploaded first. Engram rows depend on token ids alone.
Step Model::forward_recorded(StepPlan& plan, const Recorder& recorder) {
  const std::vector<const uint32_t*> engram_index = upload_engram_index(plan);
  make_maps(plan);
  RecordedSteps::Key key = RecordedSteps::key(plan);
  for (const uint32_t* index : engram_index) key.push_back(reinterpret_cast<uintptr_t>(index));
  return recorder(std::move(key), [&] { return run(plan, engram_index, {}); });
}

void Model::prepare(StepPlan& plan) {
  HADAL_CHECK(recordable(plan));
  const Recorder recorder = [this](auto key, const auto& work) { return recorded_->prepare(std::move(key), work); };
  const Step step = forward_recorded(plan, recorder);
  commit_recorded(plan, step, context_.upload(std::vector<int32_t>(plan.requests().size(), 0)), recorder);
}

Step Model::run(StepPlan& plan, std::span<const uint32_t* const> engram_rows_of, const Observer& observe) {
  const V41Config& c = config_;
  Step step;
  step.latents.resize(static_cast<size_t>(c.layers()));
  step.halves.resize(c.kv_source_layer_ids.size());

  const std::vector<Tensor> engram_rows = gather_engram_rows(plan, engram_rows_of);

  Published published;
  const int n = plan.rows();
  published.selection = {context_.tensor(n, std::max(1, c.index_topk), DType::i32), context_.tensor(n, 1, DType::i32)};
  published.candidates = {context_.tensor(n, std::max(1, c.candidate_topk_blocks), DType::i32),
                          context_.tensor(n, 1, DType::i32)};
  const int taps = static_cast<int>(c.dspark_target_layer_ids.size());
  Tensor main_hidden;
  if (c.draft_stages() > 0)
    main_hidden = context_.activations(plan.draft().rows, static_cast<int64_t>(taps) * c.hidden_size);

  Residual residual(context_, op_, residual_shape(c), plan, &weights_.layers.front().attention.wkv);
  residual.embed(weights_.embed);
  for (int l = 0; l < c.layers(); ++l) {
    const BlockWeights& w = weights_.layers[static_cast<size_t>(l)];
    const RowSet& in = plan.in(l);
    const RowSet& out = plan.out(l);
    if (in.rows == 0) break;
    const int engram_index = c.engram_index(l);
    const int tap_index = index_of(c.dspark_target_layer_ids, l);
    if (engram_index >= 0 || tap_index < taps) residual.flush(in);
    if (tap_index < taps) tap(plan, residual, tap_index * c.hidden_size, main_hidden);
    if (engram_index >= 0) engram(l, plan, residual, engram_rows[static_cast<size_t>(engram_index)], observe);

    // Compressor, indexer and the queries of some of the rows read x as it is.
    const bool x_too =
        observe || c.is_kv_source(l) || (out.rows > 0 && (c.is_index_source(l) || plan.map(in, out) != nullptr));
    const Residual::Input x = residual.enter_linears(w.attn_mix, w.attn_norm, in, !x_too);
    see(observe, "attn_in", l, x.x);
    see(observe, "attn_pre", l, residual.streams().pre);
    see(observe, "attn_post", l, residual.streams().post);
    see(observe, "attn_comb", l, residual.streams().comb);
    const Tensor attention_out = out.rows > 0 ? residual.output(out) : Tensor{};
    attention(w, l, plan, x.x, x.rounded, step, published, attention_out, observe);
    if (out.rows == 0) break;

    const Tensor x_ffn = residual.enter(w.ffn_mix, w.ffn_norm, out);
    see(observe, "ffn_in", l, x_ffn);
    see(observe, "pre_mix", l, residual.streams().pre);
    moe(w.moe, out, c.num_experts_per_tok, image_rows(plan, out), x_ffn, residual.output(out), l, observe);
    if (observe) {  // the copies after the layer; otherwise the update waits for the next mixing
      residual.flush(out);
      see(observe, "h_out", l, residual.h());
    }
  }

  const RowSet& wanted = plan.logits();
  if (wanted.rows > 0) {
    const Tensor x = residual.finish(weights_.norm, wanted, {});
    see(observe, "final_norm", c.layers(), x);
    step.logits = context_.tensor(wanted.rows, c.vocab_size, DType::f32);
    op_.head(context_, {wanted.rows, x, weights_.head, step.logits});
  }
  if (c.draft_stages() > 0) condition_drafts(plan, main_hidden, step, observe);
  context_.join_aside();
  return step;
}

std::vector<const uint32_t*> Model::upload_engram_index(StepPlan& plan) {
  std::vector<const uint32_t*> index;
  for (size_t i = 0; i < config_.engram_layer_ids.size(); ++i) {
    const RowSet& rows = plan.in(config_.engram_layer_ids[i]);
    const auto columns = static_cast<size_t>(engram_hash_->columns());
    std::vector<uint32_t> list(static_cast<size_t>(rows.rows) * columns);
    uint32_t* next = list.data();
    for (const int32_t r : plan.step_rows(rows)) {
      const RequestState& state = *plan.requests()[static_cast<size_t>(plan.segment_of(r))].state;
      engram_hash_->rows(static_cast<int>(i), state.tokens(), plan.position_of(r), config_.image_token_id, next);
      next += columns;
    }
    index.push_back(context_.upload(list));
  }
  return index;
}

std::vector<Tensor> Model::gather_engram_rows(StepPlan& plan, std::span<const uint32_t* const> lists) {
  std::vector<EngramGatherArgs> gathers;
  std::vector<Tensor> rows;
  bool on_host = false;
  for (size_t i = 0; i < config_.engram_layer_ids.size(); ++i) {
    const EngramTable& table = weights_.engrams[i].table;
    const int count = plan.in(config_.engram_layer_ids[i]).rows, columns = engram_hash_->columns();
    rows.push_back(linear_input(op_, context_, count, weights_.engrams[i].wkv, 1));
    if (count > 0) gathers.push_back({count, columns, lists[i], table, rows.back()});
    on_host = on_host || table.on_host;
  }
  const auto gather = [&] {
    for (const EngramGatherArgs& args : gathers) op_.engram_gather(context_, args);
  };
  on_host ? context_.aside(gather) : gather();
  return rows;
}

void Model::engram(int layer, StepPlan& plan, Residual& residual, const Tensor& rows, const Observer& observe) {
  const EngramWeights& w = weights_.engrams[static_cast<size_t>(config_.engram_index(layer))];
  EngramApplyArgs a;
  a.rows = residual.rows().rows;
  a.copies = config_.hc_mult;
  a.d = config_.hidden_size;
  a.norm_eps = static_cast<float>(config_.rms_norm_eps);
  a.e = rows;
  a.wkv = w.wkv;
  a.q_weight = w.q_weight;
  a.k_weight = w.k_weight;
  a.dead = image_rows(plan, residual.rows());
  a.h = residual.h();
  context_.join_aside();
  if (observe) a.gate = context_.tensor(a.rows, a.copies, DType::f32);
  op_.engram_apply(context_, a);
  see(observe, "engram_gate", layer, a.gate);
  see(observe, "engram_out", layer, a.h);
}

bool Model::has_images(const StepPlan& plan) const {
  return config_.image_token_id >= 0 &&
         std::find(plan.tokens().begin(), plan.tokens().end(), config_.image_token_id) != plan.tokens().end();
}

const uint8_t* Model::image_rows(StepPlan& plan, const RowSet& rows) {
  if (!has_images(plan)) return nullptr;
  std::vector<uint8_t> image;
  for (const int32_t r : plan.step_rows(rows))
    image.push_back(plan.tokens()[static_cast<size_t>(r)] == config_.image_token_id);
  return context_.upload(image);
}

void Model::tap(StepPlan& plan, const Residual& residual, int column, const Tensor& main_hidden) {
  const RowSet& draft = plan.draft();
  if (draft.rows == 0) return;
  op_.tap(context_, {draft.rows, config_.hc_mult, config_.hidden_size, residual.h(), plan.map(residual.rows(), draft),
                     main_hidden, column});
}

// Before the first layer of an owner attends: its entries are new.
void Model::share_entries(const SparseAttentionArgs& args, Published& published) {
  const size_t bytes = op_.shared_entries_bytes != nullptr ? op_.shared_entries_bytes(context_, args) : 0;
  SharedEntries& shared = published.shared;
  if (bytes > shared.bytes) shared = {context_.allocate_step(bytes), bytes};
  shared.filled = false;
  published.shares = bytes > 0;
}

void Model::attention(const BlockWeights& w, int layer, StepPlan& plan, const Tensor& x, const Tensor& x_rounded,
                      Step& step, Published& published, const Tensor& y, const Observer& observe) {
  const V41Config& c = config_;
  const RowSet& in = plan.in(layer);
  const RowSet& out = plan.out(layer);
  const int ratio = c.ratio(layer);
  const CachePools& pools = plan.requests().front().state->pools();
  const int owner = ratio > 0 ? index_of(c.kv_source_layer_ids, c.kv_source_of(layer)) : -1;

  Tensor& latent = step.latents[static_cast<size_t>(layer)];
  latent = context_.tensor(in.rows, static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, c.head_dim)), DType::u8);
  Tensor halves;
  if (ratio > 1 && c.is_kv_source(layer)) {
    halves = context_.tensor(in.rows, 2 * static_cast<int64_t>(c.head_dim), DType::f32);
    step.halves[static_cast<size_t>(owner)] = halves;
  }

  SparseAttentionArgs s;
  s.in = &in;
  s.out = &out;
  s.segments = &plan.segments();
  s.heads = c.num_attention_heads;
  s.head_dim = c.head_dim;
  s.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  s.rope = rope(ratio);
  s.sink = w.attention.sink;
  s.ring = pools.ring(layer);
  if (layer >= c.first_decoder_layer()) s.floor = plan.floor();
  PagedRows entries;
  if (ratio > 0) {
    entries = pools.entries(owner);
    s.entries = &entries;
    s.selection = &published.selection;
    if (c.is_kv_source(layer)) share_entries(s, published);
    if (published.shares) s.shared = &published.shared;
  }

  const int32_t* source = plan.map(in, out);  // kept by the plan, so not scratch
  const StepScratch scratch(context_);
  AttentionInputArgs p;
  p.x = x;
  p.x_rounded = x_rounded;
  p.in = &in;
  p.heads = c.num_attention_heads;
  p.head_dim = c.head_dim;
  p.norm_eps = static_cast<float>(c.rms_norm_eps);
  p.rope = rope(ratio);
  p.wkv = w.attention.wkv;
  p.kv_norm = w.attention.kv_norm;
  p.latent = latent;
  if (out.rows > 0) {
    p.out = &out;
    p.source = source;
    p.wq_a = w.attention.wq_a;
    p.q_norm = w.attention.q_norm;
    p.wq_b = w.attention.wq_b;
    p.qr = context_.activations(out.rows, c.q_lora_rank);
    p.q = context_.activations(out.rows, static_cast<int64_t>(c.num_attention_heads) * c.head_dim);
    if (source == nullptr && op_.query_angles != nullptr) p.q_angles = op_.query_angles(context_, out.rows, p.rope);
  }
  op_.attention_input(context_, p);
  see(observe, "window_kv", layer, latent);

  if (ratio > 0) {
    if (c.is_kv_source(layer)) {
      const CompressorWeights& cw = weights_.compressors[static_cast<size_t>(owner)];
      CompressorArgs a;
      a.x = x;
      a.rows = &in;
      a.segments = &plan.segments();
      a.ratio = ratio;
      a.head_dim = c.head_dim;
      a.index_dim = c.index_head_dim;
      a.norm_eps = static_cast<float>(c.rms_norm_eps);
      a.rope = rope(ratio);
      a.wkv = cw.wkv;
      a.wgate = cw.wgate;
      a.norm = cw.norm;
      a.wk = cw.wk;
      a.k_norm = cw.k_norm;
      a.pending = pools.pending(owner);
      a.ab = halves;
      a.entries = entries;
      a.keys = pools.keys(owner);
      if (observe) a.latent = context_.tensor(in.rows, c.head_dim, DType::f32);
      op_.compressor(context_, a);
      see(observe, "latent", layer, a.latent);
    }
    if (c.is_index_source(layer) && out.rows > 0) {
      const IndexerWeights& iw = weights_.indexers[static_cast<size_t>(index_of(c.index_source_layer_ids, layer))];
      IndexerArgs a;
      a.rows = &out;
      a.segments = &plan.segments();
      a.qr = p.qr;
      a.x = x;
      a.x_source = p.source;
      a.ratio = ratio;
      a.heads = c.index_n_heads;
      a.index_dim = c.index_head_dim;
      a.topk = c.index_topk;
      a.rope = rope(ratio);
      a.wq_b = iw.wq_b;
      a.weights_proj = iw.weights_proj;
      a.keys = pools.keys(owner);
      if (layer == c.candidate_source_layer_id) a.use = CandidateUse::publish;
      if (layer > c.candidate_source_layer_id && c.kv_source_of(layer) == c.candidate_source_layer_id)
        a.use = CandidateUse::filter;
      a.candidate_topk_blocks = c.candidate_topk_blocks;
      a.candidate_block_size = c.candidate_block_size;
      a.candidates = published.candidates;
      a.selection = published.selection;
      if (observe) {
        int64_t most = 1;
        for (const SegmentRequest& r : plan.requests())
          most = std::max(most, static_cast<int64_t>(r.state->tokens().size()) / ratio);
        a.query_trace = context_.tensor(out.rows, static_cast<int64_t>(a.heads) * a.index_dim, DType::f32);
        a.score_trace = context_.tensor(out.rows, most, DType::f32);
      }
      op_.indexer(context_, a);
      see(observe, "index_q", layer, a.query_trace);
      see(observe, "index_scores", layer, a.score_trace);
      see(observe, "selected", layer, a.selection.rows);
      see(observe, "selected_count", layer, a.selection.count);
      if (a.use == CandidateUse::publish) {
        see(observe, "candidate_blocks", layer, a.candidates.blocks);
        see(observe, "candidate_count", layer, a.candidates.count);
      }
    }
  }
  if (out.rows == 0) return;

  s.q = p.q;
  s.q_angles = p.q_angles;
  s.latent = latent;
  s.o = linear_input(op_, context_, out.rows, w.attention.wo_a, c.o_groups);
  op_.sparse_attention(context_, s);
  op_.attention_output(context_, {out.rows, c.o_groups, s.o, w.attention.wo_a, w.attention.wo_b, y});
  see(observe, "attn_out", layer, y);
}

void Model::moe(const MoeWeights& w, const RowSet& rows, int topk, const uint8_t* image, const Tensor& x,
                const Tensor& y, int layer, const Observer& observe) {
  const StepScratch scratch(context_);
  ExpertsArgs e;
  e.rows = rows.rows;
  e.topk = topk;
  e.limit = static_cast<float>(config_.swiglu_limit);
  e.x = x;
  e.ids = context_.tensor(rows.rows, topk, DType::i32);
  e.weights = context_.tensor(rows.rows, topk, DType::f32);
  e.experts = w.experts.get();
  e.shared = w.shared;
  e.y = y;
  if (op_.begin_experts != nullptr) op_.begin_experts(context_, e);

  RouterArgs r;
  r.rows = rows.rows;
  r.topk = topk;
  r.route_scale = static_cast<float>(config_.routed_scaling_factor);
  r.gate_temp = static_cast<float>(config_.gate_temp);
  r.x = x;
  r.gate = w.gate;
  r.bias = w.bias;
  r.bias_vl = w.bias_vl;
  r.image = image;
  r.ids = e.ids;
  r.weights = e.weights;
  if (observe) r.scores = context_.tensor(rows.rows, w.gate.n, DType::f32);
  op_.router(context_, r);
  see(observe, "router_scores", layer, r.scores);
  see(observe, "expert_ids", layer, r.ids);
  see(observe, "expert_weights", layer, r.weights);
  w.experts->hint(r.ids.i32(), rows.rows * topk);

  op_.experts(context_, e);
  see(observe, "moe_out", layer, y);
}

void Model::commit(StepPlan& plan, const Step& step, std::span<const int32_t> accepted) {
  write_rings(plan, step, accepted);
  for (size_t s = 0; s < accepted.size(); ++s) plan.requests()[s].state->commit(accepted[s]);
}

void Model::write_rings(StepPlan& plan, const Step& step, std::span<const int32_t> accepted) {
  HADAL_CHECK(accepted.size() <= plan.requests().size());
  std::vector<int32_t> of_all(plan.requests().size(), 0);
  std::copy(accepted.begin(), accepted.end(), of_all.begin());
  const int32_t* device_accepted = context_.upload(of_all);
  if (recordable(plan))
    commit_recorded(plan, step, device_accepted,
                    [this](auto key, const auto& work) { return recorded_->run(std::move(key), work); });
  else
    give_commit(plan, step, device_accepted);
}

void Model::commit_recorded(StepPlan& plan, const Step& step, const int32_t* accepted, const Recorder& recorder) {
  RecordedSteps::Key key = RecordedSteps::key(plan, false);
  key.push_back(reinterpret_cast<uintptr_t>(accepted));
  for (const Tensor& latent : step.latents) key.push_back(reinterpret_cast<uintptr_t>(latent.data));
  recorder(std::move(key), [&] {
    give_commit(plan, step, accepted);
    return Step{};
  });
}

void Model::give_commit(StepPlan& plan, const Step& step, const int32_t* accepted) {
  const CachePools& pools = plan.requests().front().state->pools();
  std::vector<CommittedLayer> layers;
  for (int l = 0; l < config_.layers(); ++l) {
    const auto i = static_cast<size_t>(l);
    if (plan.in(l).rows == 0) continue;
    layers.push_back({&plan.in(l), step.latents[i], pools.ring(l), {}, nullptr});
    if (config_.is_kv_source(l) && config_.ratio(l) > 1) {
      const int owner = index_of(config_.kv_source_layer_ids, l);
      layers.back().ab = step.halves[static_cast<size_t>(owner)];
      layers.back().pending = pools.pending(owner);
    }
  }
  for (size_t s = 0; s < step.draft_latents.size(); ++s)
    layers.push_back({&plan.draft(), step.draft_latents[s], pools.draft_ring(static_cast<int>(s)), {}, nullptr});
  op_.cache_commit(context_, {&plan.segments(), accepted, layers});
}

}  // namespace hadal::deepseek_v41
