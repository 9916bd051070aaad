#include "models/deepseek_v41/synthetic.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace hadal::deepseek_v41 {
namespace {

class Maker {
 public:
  Maker(const Rank& rank, uint64_t seed, Context& context, const Operators& operators)
      : c_(rank.config), local_experts_(rank.local_experts), seed_(seed << 20), context_(context), op_(operators) {}

  // Gains are those of synthetic checkpoints (checkpoint/synth_weights.cc): products of unit inputs have about this size.
  Weight matrix(WeightFormat format, int64_t n, int64_t k, float gain = 1) {
    Weight w{format, static_cast<int>(n), static_cast<int>(k)};
    op_.random_weight(context_, w, values(gain, k));
    return w;
  }
  Weight fp8(int64_t n, int64_t k, float gain = 1) { return matrix(WeightFormat::fp8_block32, n, k, gain); }
  Weight bf16(int64_t n, int64_t k, float gain = 1) { return matrix(WeightFormat::bf16, n, k, gain); }

  const uint16_t* norm(int64_t n) { return static_cast<const uint16_t*>(vector(WeightFormat::bf16, n, 1, 0.2f)); }
  const float* floats(int64_t n, float mean, float deviation) {
    return static_cast<const float*>(vector(WeightFormat::f32, n, mean, deviation));
  }

  BlockWeights block() {
    const int64_t d = c_.hidden_size, lora = c_.q_lora_rank, q = int64_t{c_.num_attention_heads} * c_.head_dim;
    const int64_t o = int64_t{c_.o_groups} * c_.o_lora_rank, inner = c_.moe_intermediate_size;
    if (op_.check_groups != nullptr)
      op_.check_groups(context_, "wo_a",
                       {WeightFormat::fp8_block32, static_cast<int>(o), static_cast<int>(q / c_.o_groups)},
                       c_.o_groups);
    BlockWeights w;
    w.attn_mix = mix();
    w.ffn_mix = mix();
    w.attn_norm = norm(d);
    w.ffn_norm = norm(d);
    w.attention.wq_a = fp8(lora, d);
    w.attention.q_norm = norm(lora);
    w.attention.wq_b = fp8(q, lora, 1.5f);
    w.attention.wkv = fp8(c_.head_dim, d);
    w.attention.kv_norm = norm(c_.head_dim);
    w.attention.wo_a = fp8(o, q / c_.o_groups, 1.3f);
    w.attention.wo_b = fp8(d, o, 0.6f);
    w.attention.sink = floats(c_.num_attention_heads, 0, 0.7f);
    w.moe.gate = bf16(c_.n_routed_experts, d, 1.5f);
    w.moe.bias = floats(c_.n_routed_experts, 0, 0.2f);
    w.moe.bias_vl = floats(c_.n_routed_experts, 0, 0.2f);
    w.moe.experts = experts();
    w.moe.shared = {fp8(inner, d), fp8(inner, d), fp8(d, inner, 0.7f)};
    return w;
  }

  CompressorWeights compressor(int ratio) {
    CompressorWeights w;
    w.wkv = bf16(c_.head_dim, c_.hidden_size);
    if (ratio > 1) w.wgate = bf16(c_.head_dim, c_.hidden_size, 1.5f);
    w.norm = norm(c_.head_dim);
    w.wk = bf16(c_.index_head_dim, c_.head_dim);
    w.k_norm = norm(c_.index_head_dim);
    return w;
  }

  IndexerWeights indexer() {
    return {fp8(int64_t{c_.index_n_heads} * c_.index_head_dim, c_.q_lora_rank), bf16(c_.index_n_heads, c_.hidden_size)};
  }

  EngramWeights engram(int64_t rows) {
    EngramWeights w;
    w.table.table_rows = rows;
    w.table.dim = c_.engram_head_dim;
    w.table.on_host = context_.table_place() == TablePlace::host;
    op_.random_table(context_, w.table, {next(), 1, 0});
    w.wkv = fp8((c_.hc_mult + 1) * int64_t{c_.hidden_size}, int64_t{c_.engram_columns()} * c_.engram_head_dim, 0.8f);
    w.q_weight = norm(int64_t{c_.hc_mult} * c_.hidden_size);
    w.k_weight = norm(int64_t{c_.hc_mult} * c_.hidden_size);
    return w;
  }

 private:
  class Experts final : public ExpertStore {
   public:
    explicit Experts(std::vector<FeedForward> list) : list_(std::move(list)) {}
    int count() const override { return static_cast<int>(list_.size()); }
    bool is_local(int) const override { return true; }
    const FeedForward& expert(int e) const override { return list_[static_cast<size_t>(e)]; }
    void hint(const int32_t*, int) const override {}

   private:
    std::vector<FeedForward> list_;
  };

  uint64_t next() { return seed_ += uint64_t{1} << 16; }  // experts take the numbers in between
  RandomValues values(float gain, int64_t k) { return {next(), gain / std::sqrt(static_cast<float>(k)), 0}; }

  const void* vector(WeightFormat format, int64_t n, float mean, float deviation) {
    Weight w{format, 1, static_cast<int>(n)};
    op_.random_weight(context_, w, {next(), deviation, mean});
    return w.data;
  }

  HyperConnectionWeights mix() {
    const int64_t n = c_.hc_mix(), k = int64_t{c_.hc_mult} * c_.hidden_size;
    return {floats(n * k, 0, 1 / std::sqrt(static_cast<float>(k))), floats(n, 0, 0.6f), floats(3, 0.75f, 0.1f)};
  }

  std::unique_ptr<ExpertStore> experts() {
    const int d = c_.hidden_size, inner = c_.moe_intermediate_size;
    const Weight in{WeightFormat::mxfp4, inner, d}, out{WeightFormat::mxfp4, d, inner};
    std::vector<FeedForward> list(static_cast<size_t>(local_experts_), {in, in, out});
    const RandomValues gate_up = values(1, d), down = values(0.7f, inner);
    op_.random_experts(context_, list, gate_up, down);
    return std::make_unique<Experts>(std::move(list));
  }

  const V41Config& c_;
  int local_experts_;
  uint64_t seed_;
  Context& context_;
  const Operators& op_;
};

void keep_below(std::vector<int>& list, int layers) {
  list.erase(std::remove_if(list.begin(), list.end(), [&](int l) { return l >= layers; }), list.end());
}

}  // namespace

Rank make_rank(const V41Config& config, const RankOptions& options) {
  Rank rank{config, 0};
  V41Config& c = rank.config;
  if (options.ranks < 1 || c.n_routed_experts % options.ranks != 0)
    fail(ErrorKind::invalid_argument, "{} routed experts cannot be divided among {} ranks", c.n_routed_experts,
         options.ranks);
  rank.local_experts = c.n_routed_experts / options.ranks;
  if (rank.local_experts < c.num_experts_per_tok)
    fail(ErrorKind::invalid_argument, "a rank of {} has {} experts, a token needs {}", options.ranks,
         rank.local_experts, c.num_experts_per_tok);
  if (options.layers > c.layers())
    fail(ErrorKind::invalid_argument, "{} layers are asked for, the model has {}", options.layers, c.layers());
  if (options.layers > 0) c.num_hidden_layers = options.layers;
  c.compress_ratios.resize(static_cast<size_t>(c.layers()));
  for (std::vector<int>* list : {&c.kv_source_layer_ids, &c.index_source_layer_ids, &c.engram_layer_ids})
    keep_below(*list, c.layers());
  if (c.candidate_source_layer_id >= c.layers()) c.candidate_source_layer_id = -1;
  c.num_nextn_predict_layers = 0;
  c.dspark_target_layer_ids.clear();

  const int columns = c.engram_columns();
  if (columns == 0 || c.engram_layer_ids.empty()) return rank;
  const int64_t head_rows =
      options.engram_rows > 0 ? options.engram_rows / columns : c.engram_vocab_size / options.ranks;
  if (head_rows < 1 || head_rows > c.engram_vocab_size)
    fail(ErrorKind::invalid_argument, "{} Engram rows a table: expected {} to {}", options.engram_rows, columns,
         columns * c.engram_vocab_size);
  c.engram_vocab_size = head_rows;
  c.engram_num_embeddings.clear();
  for (size_t i = 0; i < c.engram_layer_ids.size(); ++i) {
    const std::vector<int64_t> primes = c.engram_primes(static_cast<int>(i));
    c.engram_num_embeddings.push_back(std::accumulate(primes.begin(), primes.end(), int64_t{0}));
  }
  return rank;
}

ModelWeights random_model_weights(const Rank& rank, uint64_t seed, Context& context, const Operators& operators,
                                  const std::function<void(double)>& progress) {
  if (operators.random_weight == nullptr)
    fail(ErrorKind::unsupported,
         "the {} backend makes no random weights; write a checkpoint with `hadal synth` and give its folder",
         operators.backend);
  const V41Config& c = rank.config;
  Maker make(rank, seed, context, operators);
  ModelWeights w;
  w.embed = make.bf16(c.vocab_size, c.hidden_size, std::sqrt(static_cast<float>(c.hidden_size)));
  w.head = make.bf16(c.vocab_size, c.hidden_size, 1.7f);
  w.norm = make.norm(c.hidden_size);
  for (const int64_t rows : c.engram_num_embeddings) w.engrams.push_back(make.engram(rows));
  for (int l = 0; l < c.layers(); ++l) {
    w.layers.push_back(make.block());
    if (c.is_kv_source(l)) w.compressors.push_back(make.compressor(c.ratio(l)));
    if (c.is_index_source(l)) w.indexers.push_back(make.indexer());
    if (progress) {
      context.wait();
      progress(static_cast<double>(l + 1) / c.layers());
    }
  }
  return w;
}

}  // namespace hadal::deepseek_v41
