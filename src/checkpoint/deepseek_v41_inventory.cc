#include "checkpoint/deepseek_v41_inventory.h"

#include <fmt/format.h>

namespace hadal {
namespace {

constexpr int64_t block = 32;
int64_t blocks(int64_t n) { return (n + block - 1) / block; }

class Builder {
 public:
  explicit Builder(const V41Config& config) : c_(config) {}

  std::vector<ExpectedTensor> build() {
    const int64_t V = c_.vocab_size, D = c_.hidden_size;
    bf16("embed.weight", {V, D}, V41Part::embedding);
    for (int l = 0; l < c_.layers(); ++l) layer(l);
    bf16("norm.weight", {D}, V41Part::head);
    bf16("head.weight", {V, D}, V41Part::head);
    for (int s = 0; s < c_.draft_stages(); ++s) draft_stage(s);
    return std::move(out_);
  }

 private:
  using Shape = std::vector<int64_t>;

  void add(std::string name, TensorType type, Shape shape, V41Part part, bool is_scale = false) {
    out_.push_back({std::move(name), type, std::move(shape), part, is_scale});
  }
  void bf16(std::string name, Shape shape, V41Part part) {
    add(std::move(name), TensorType::bf16, std::move(shape), part);
  }
  void f32(std::string name, Shape shape, V41Part part) {
    add(std::move(name), TensorType::f32, std::move(shape), part);
  }
  void fp8(const std::string& name, int64_t n, int64_t k, V41Part part, int64_t block_rows = block) {
    add(name + ".weight", TensorType::f8_e4m3, {n, k}, part);
    add(name + ".scale", TensorType::f8_e8m0, {(n + block_rows - 1) / block_rows, blocks(k)}, part, true);
  }
  void fp4(const std::string& name, int64_t n, int64_t k, V41Part part) {
    add(name + ".weight", TensorType::i8, {n, k / 2}, part);
    add(name + ".scale", TensorType::f8_e8m0, {n, k / block}, part, true);
  }

  // What every layer and every draft stage has.
  void transformer_block(const std::string& p, int experts, bool draft) {
    const int64_t D = c_.hidden_size, H = c_.num_attention_heads, d = c_.head_dim, q = c_.q_lora_rank;
    const int64_t G = c_.o_groups, o = c_.o_lora_rank, I = c_.moe_intermediate_size, hc = c_.hc_mult;
    const auto part = [&](V41Part own) { return draft ? V41Part::draft : own; };
    const V41Part attention = part(V41Part::attention);
    fp8(p + "attn.wq_a", q, D, attention);
    bf16(p + "attn.q_norm.weight", {q}, attention);
    fp8(p + "attn.wq_b", H * d, q, attention);
    fp8(p + "attn.wkv", d, D, attention);
    bf16(p + "attn.kv_norm.weight", {d}, attention);
    fp8(p + "attn.wo_a", G * o, H * d / G, attention);
    fp8(p + "attn.wo_b", D, G * o, attention);
    f32(p + "attn.attn_sink", {H}, attention);
    bf16(p + "attn_norm.weight", {D}, attention);
    bf16(p + "ffn_norm.weight", {D}, attention);
    for (const char* site : {"attn", "ffn"}) {
      f32(fmt::format("{}hc_{}_fn", p, site), {c_.hc_mix(), hc * D}, attention);
      f32(fmt::format("{}hc_{}_base", p, site), {c_.hc_mix()}, attention);
      f32(fmt::format("{}hc_{}_scale", p, site), {3}, attention);
    }
    const V41Part router = part(V41Part::router), shared = part(V41Part::shared_expert);
    bf16(p + "ffn.gate.weight", {experts, D}, router);
    f32(p + "ffn.gate.bias", {experts}, router);
    f32(p + "ffn.gate.bias_vl", {experts}, router);
    fp8(p + "ffn.shared_experts.w1", I, D, shared);
    fp8(p + "ffn.shared_experts.w2", D, I, shared);
    fp8(p + "ffn.shared_experts.w3", I, D, shared);
    const V41Part routed = draft ? V41Part::draft_expert : V41Part::routed_expert;
    for (int e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}ffn.experts.{}.", p, e);
      fp4(expert + "w1", I, D, routed);
      fp4(expert + "w2", D, I, routed);
      fp4(expert + "w3", I, D, routed);
    }
  }

  void layer(int l) {
    const int64_t D = c_.hidden_size, d = c_.head_dim, id = c_.index_head_dim, ih = c_.index_n_heads;
    const std::string p = fmt::format("layers.{}.", l);
    transformer_block(p, c_.n_routed_experts, false);
    if (c_.is_kv_source(l)) {
      bf16(p + "attn.compressor.wkv.weight", {d, D}, V41Part::attention);
      // A group of one entry needs no gate.
      if (c_.ratio(l) > 1) bf16(p + "attn.compressor.wgate.weight", {d, D}, V41Part::attention);
      bf16(p + "attn.compressor.norm.weight", {d}, V41Part::attention);
      bf16(p + "attn.indexer.wk.weight", {id, d}, V41Part::indexer);
      bf16(p + "attn.indexer.k_norm.weight", {id}, V41Part::indexer);
    }
    if (c_.is_index_source(l)) {
      fp8(p + "attn.indexer.wq_b", ih * id, c_.q_lora_rank, V41Part::indexer);
      bf16(p + "attn.indexer.weights_proj.weight", {ih, D}, V41Part::indexer);
    }
    if (const int i = c_.engram_index(l); i >= 0) {
      const int64_t row = c_.engram_head_dim;
      fp8(p + "engram.embed", c_.engram_num_embeddings[size_t(i)], row, V41Part::engram_table, 1);
      fp8(p + "engram.wkv", (c_.hc_mult + 1) * D, c_.engram_columns() * row, V41Part::engram);
      bf16(p + "engram.q_weight", {c_.hc_mult, D}, V41Part::engram);
      bf16(p + "engram.k_weight", {c_.hc_mult, D}, V41Part::engram);
    }
  }

  void draft_stage(int s) {
    const int64_t V = c_.vocab_size, D = c_.hidden_size, rank = c_.dspark_markov_rank;
    const V41Part draft = V41Part::draft;
    const std::string p = fmt::format("mtp.{}.", s);
    transformer_block(p, c_.dspark_n_routed_experts, true);
    if (s == 0) {
      fp8(p + "main_proj", D, int64_t(c_.dspark_target_layer_ids.size()) * D, draft);
      bf16(p + "main_norm.weight", {D}, draft);
    }
    if (s == c_.draft_stages() - 1) {
      bf16(p + "norm.weight", {D}, draft);
      bf16(p + "markov_head.embed.weight", {V, rank}, draft);
      bf16(p + "markov_head.head.weight", {V, rank}, draft);
      bf16(p + "confidence_head.proj.weight", {1, D + rank}, draft);
    }
  }

  const V41Config& c_;
  std::vector<ExpectedTensor> out_;
};

}  // namespace

std::string_view part_name(V41Part part) {
  constexpr std::string_view names[] = {"embedding",     "head",           "attention",      "indexer",
                                        "router",        "shared experts", "routed experts", "Engram",
                                        "Engram tables", "draft",          "draft experts",  "vision"};
  return names[size_t(part)];
}

size_t ExpectedTensor::bytes() const {
  size_t bytes = type_size(type);
  for (const int64_t extent : shape) bytes *= size_t(extent);
  return bytes;
}

int64_t ExpectedTensor::parameters() const {
  if (is_scale) return 0;
  return int64_t(bytes() / type_size(type)) * (type == TensorType::i8 ? 2 : 1);
}

std::vector<ExpectedTensor> v41_inventory(const V41Config& config) { return Builder(config).build(); }

bool is_vision_tensor(std::string_view name) {
  return name.starts_with("vision.") || name.starts_with("aligner.") || name == "image_start" || name == "image_end" ||
         name == "image_newline";
}

}  // namespace hadal
