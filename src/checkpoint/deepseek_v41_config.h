// The configuration of a DeepSeek-V4.1 checkpoint: config.json as published, with every field checked.
// Field names and meanings: the official config.json ("text_config").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace hadal {

struct RopeScaling {  // YaRN; applies to layers with compress_ratio > 0 only
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};

struct V41Config {
  // Top level.
  int bos_token_id = 0;
  int eos_token_id = 0;
  int pad_token_id = 0;
  int image_token_id = -1;  // -1 when the file has none
  bool has_vision = false;  // there is a vision_config; its tensors are recognised and not read

  // text_config.
  int vocab_size = 0;
  int hidden_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int head_dim = 0;          // includes the rotated part
  int qk_rope_head_dim = 0;  // the last channels of a head
  int q_lora_rank = 0;
  int o_groups = 0;
  int o_lora_rank = 0;
  int sliding_window = 0;  // includes the current token
  int moe_intermediate_size = 0;
  int n_routed_experts = 0;
  int n_shared_experts = 1;
  int num_experts_per_tok = 0;
  double routed_scaling_factor = 1;
  double gate_temp = 1;  // divides router logits; absent in the release
  double swiglu_limit = 0;
  double rms_norm_eps = 0;
  int64_t max_position_embeddings = 0;
  double rope_theta = 0;           // layers with ratio 0
  double compress_rope_theta = 0;  // layers with ratio > 0
  RopeScaling rope_scaling;
  std::vector<int> compress_ratios;         // one per layer, then one per draft stage (0)
  std::vector<int> kv_source_layer_ids;     // layers that own compressed KV and index keys
  std::vector<int> index_source_layer_ids;  // layers that select entries
  int candidate_source_layer_id = -1;
  int candidate_topk_blocks = 0;
  int candidate_block_size = 0;
  int index_topk = 0;
  int index_n_heads = 0;
  int index_head_dim = 0;
  int hc_mult = 0;
  int hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  std::vector<int> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // rows of each Engram layer's table
  int engram_max_ngram_size = 0;
  int engram_n_heads = 0;
  int engram_head_dim = 0;
  int64_t engram_vocab_size = 0;
  int engram_pad_token_id = 0;
  int engram_compressed_vocab_size = 0;
  int num_nextn_predict_layers = 0;  // DSpark stages
  int dspark_block_size = 0;
  int dspark_noise_token_id = 0;
  std::vector<int> dspark_target_layer_ids;
  int dspark_markov_rank = 0;
  int dspark_n_routed_experts = 0;
  int dspark_num_experts_per_tok = 0;

  std::vector<std::string> unknown_fields;  // members of the file that Hadal does not know, by full path

  // Parses and validates. Throws invalid_data naming the field, its value and what was expected (both fields
  // and values where two contradict each other), and unsupported for other model types. `what` starts each
  // message.
  static V41Config parse(std::string_view text, std::string_view what = "config.json");
  static V41Config load(const std::filesystem::path& file);

  int layers() const { return num_hidden_layers; }
  int draft_stages() const { return num_nextn_predict_layers; }
  int ratio(int layer) const { return compress_ratios[size_t(layer)]; }
  bool is_kv_source(int layer) const;
  bool is_index_source(int layer) const;
  // The layer whose compressed KV (whose selection) this layer reads; -1 for layers with ratio 0.
  int kv_source_of(int layer) const;
  int index_source_of(int layer) const;
  // The first layer of the decoder, which is the last KV source; layers() when no layer has compressed KV.
  int first_decoder_layer() const;
  int engram_index(int layer) const;  // position in engram_layer_ids, or -1
  int engram_columns() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
  int hc_mix() const { return (2 + hc_mult) * hc_mult; }  // rows of hc_*_fn: pre, post and comb
  // Sizes of the hash tables of Engram layer number i (as in engram_layer_ids), column = (ngram - 2) * heads
  // + head: successive primes from engram_vocab_size on, no prime used twice in the model. Their sum is
  // engram_num_embeddings[i].
  std::vector<int64_t> engram_primes(int i) const;
};

}  // namespace hadal
