#include "checkpoint/deepseek_v41_config.h"

#include "base/error.h"
#include "checkpoint/json.h"

#include <algorithm>
#include <numeric>

namespace hadal {
namespace {

// Bounds that keep every product of two dimensions, and the inventory, far from overflow; well above any
// release.
constexpr int64_t max_width = 1 << 20;
constexpr int64_t max_vocab = 1 << 24;
constexpr int64_t max_layers = 1024;
constexpr int64_t max_experts = 1 << 14;
constexpr int64_t max_tensors = 500'000;
constexpr double huge = 1e30;

void refuse_other_models(JsonFields& top) {
  if (!top.has("model_type")) {
    if (top.has("n_layers") && top.has("dim"))
      fail(ErrorKind::invalid_data, "{}: this is the flat inference/config.json; Hadal reads the config.json above it",
           top.path("n_layers"));
    if (top.has("base_model_name_or_path") || top.has("peft_type"))
      fail(ErrorKind::unsupported, "{}: LoRA adapters are not supported; give the base model", top.path("peft_type"));
  }
  const std::string type = top.string("model_type");
  if (type == "deepseek_v41") return;
  if (type == "deepseek_v41_text")
    fail(ErrorKind::invalid_data, "{} is \"{}\": a bare text_config; Hadal reads the published config.json around it",
         top.path("model_type"), type);
  if (type.starts_with("deepseek"))
    fail(ErrorKind::unsupported, "{} is \"{}\": this DeepSeek model is not supported yet; supported: deepseek_v41",
         top.path("model_type"), type);
  fail(ErrorKind::unsupported, "{} is \"{}\": not a DeepSeek model; supported: deepseek_v41", top.path("model_type"),
       type);
}

void parse_quantization(JsonFields q) {
  q.expect("quant_method", "fp8");
  q.expect("activation_scheme", "dynamic");
  q.expect("fmt", "e4m3");
  q.expect("scale_fmt", "ue8m0");
  q.expect("expert_dtype", "fp4");
  const std::vector<int64_t> block = q.integers("weight_block_size", 1, 1 << 16, 2);
  if (block != std::vector<int64_t>{32, 32})
    fail(ErrorKind::invalid_data, "{} is {}, and DeepSeek-V4.1 has [32,32]", q.path("weight_block_size"),
         show(q.get("weight_block_size")));
}

std::vector<int> ints(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }

// Reads text_config into `c`. Ranges of single fields are checked here, relations between fields in check().
void parse_text(JsonFields& t, V41Config& c) {
  const auto integer = [&](const char* name, int64_t min, int64_t max) { return int(t.integer(name, min, max)); };
  const auto layer_ids = [&](const char* name) { return ints(t.integers(name, 0, max_layers, max_layers)); };

  t.expect("model_type", "deepseek_v41_text");
  c.vocab_size = integer("vocab_size", 1, max_vocab);
  c.hidden_size = integer("hidden_size", 32, max_width);
  c.num_hidden_layers = integer("num_hidden_layers", 1, max_layers);
  c.num_attention_heads = integer("num_attention_heads", 1, 4096);
  t.expect_integer("num_key_value_heads", 1);
  c.head_dim = integer("head_dim", 32, 8192);
  c.qk_rope_head_dim = integer("qk_rope_head_dim", 2, 8192);
  c.q_lora_rank = integer("q_lora_rank", 32, max_width);
  c.o_groups = integer("o_groups", 1, 4096);
  c.o_lora_rank = integer("o_lora_rank", 1, max_width);
  c.sliding_window = integer("sliding_window", 1, max_width);
  c.moe_intermediate_size = integer("moe_intermediate_size", 32, max_width);
  c.n_routed_experts = integer("n_routed_experts", 1, max_experts);
  t.expect_integer("n_shared_experts", 1);
  c.num_experts_per_tok = integer("num_experts_per_tok", 1, max_experts);
  t.expect("scoring_func", "sqrtsoftplus");
  t.expect("topk_method", "noaux_tc");
  t.expect_boolean("norm_topk_prob", true);
  t.expect("hidden_act", "silu");
  t.expect_boolean("attention_bias", false);
  t.expect_boolean("tie_word_embeddings", false);
  for (const char* name : {"attention_dropout", "initializer_range", "use_cache", "dtype", "torch_dtype"})
    t.ignore(name);
  c.routed_scaling_factor = t.number("routed_scaling_factor", 0, huge);
  if (t.has("gate_temp")) c.gate_temp = t.number("gate_temp", 1e-30, huge);
  c.swiglu_limit = t.number("swiglu_limit", 1e-30, huge);
  c.rms_norm_eps = t.number("rms_norm_eps", 0, 1);
  c.max_position_embeddings = t.integer("max_position_embeddings", 1, int64_t{1} << 31);
  c.rope_theta = t.number("rope_theta", 1, huge);
  c.compress_rope_theta = t.number("compress_rope_theta", 1, huge);

  JsonFields r = t.object("rope_scaling");
  r.expect("rope_type", "yarn");
  r.expect("type", "yarn");
  c.rope_scaling.factor = r.number("factor", 1, 1e6);
  c.rope_scaling.beta_fast = r.number("beta_fast", 1e-6, 1e6);
  c.rope_scaling.beta_slow = r.number("beta_slow", 1e-6, 1e6);
  c.rope_scaling.original_max_position_embeddings = r.integer("original_max_position_embeddings", 1, int64_t{1} << 31);

  c.compress_ratios = ints(t.integers("compress_ratios", 0, 1 << 16, 2 * max_layers));
  c.kv_source_layer_ids = layer_ids("kv_source_layer_ids");
  c.index_source_layer_ids = layer_ids("index_source_layer_ids");
  c.candidate_source_layer_id = integer("candidate_source_layer_id", -1, max_layers);
  c.candidate_topk_blocks = integer("candidate_topk_blocks", 1, max_width);
  c.candidate_block_size = integer("candidate_block_size", 1, max_width);
  c.index_topk = integer("index_topk", 1, max_width);
  c.index_n_heads = integer("index_n_heads", 1, 4096);
  c.index_head_dim = integer("index_head_dim", 32, 8192);
  c.hc_mult = integer("hc_mult", 1, 64);
  c.hc_sinkhorn_iters = integer("hc_sinkhorn_iters", 1, 1000);
  c.hc_eps = t.number("hc_eps", 0, 1);

  c.engram_layer_ids = layer_ids("engram_layer_ids");
  c.engram_num_embeddings = t.integers("engram_num_embeddings", 1, int64_t{1} << 36, max_layers);
  c.engram_max_ngram_size = integer("engram_max_ngram_size", 2, 16);
  c.engram_n_heads = integer("engram_n_heads", 1, 64);
  c.engram_head_dim = integer("engram_head_dim", 32, 8192);
  c.engram_vocab_size = t.integer("engram_vocab_size", 2, int64_t{1} << 31);
  // The published model class and the published inference code call it engram_pad_id.
  if (t.has("engram_pad_token_id") || !t.has("engram_pad_id"))
    c.engram_pad_token_id = integer("engram_pad_token_id", 0, max_vocab);
  if (t.has("engram_pad_id")) {
    const int other = integer("engram_pad_id", 0, max_vocab);
    if (t.has("engram_pad_token_id") && other != c.engram_pad_token_id)
      fail(ErrorKind::invalid_data, "{} is {}, but engram_pad_token_id is {}", t.path("engram_pad_id"), other,
           c.engram_pad_token_id);
    c.engram_pad_token_id = other;
  }
  c.engram_compressed_vocab_size = integer("engram_compressed_vocab_size", 1, max_vocab);

  c.num_nextn_predict_layers = integer("num_nextn_predict_layers", 0, 16);
  c.dspark_block_size = integer("dspark_block_size", 1, 64);
  c.dspark_noise_token_id = integer("dspark_noise_token_id", 0, max_vocab);
  c.dspark_target_layer_ids = layer_ids("dspark_target_layer_ids");
  c.dspark_markov_rank = integer("dspark_markov_rank", 1, max_width);
  c.dspark_n_routed_experts = integer("dspark_n_routed_experts", 1, max_experts);
  c.dspark_num_experts_per_tok = integer("dspark_num_experts_per_tok", 1, max_experts);
}

// Relations between the fields of text_config. Each message names both sides with their values.
class Checker {
 public:
  Checker(const V41Config& config, std::string what) : c_(config), what_(std::move(what)) {}

  void run() const {
    dimensions();
    token_ids();
    attention_layers();
    engram();
    drafts();
  }

 private:
  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::invalid_data, what_ + ": text_config." + fmt::format(format, std::forward<Args>(args)...));
  }
  void multiple(const char* name, int value, const char* of, int divisor) const {
    if (value % divisor != 0) wrong("{} is {}, not a multiple of {}, {}", name, value, of, divisor);
  }
  void at_most(const char* name, int value, const char* limit_name, int limit) const {
    if (value > limit) wrong("{} is {}, above {}, {}", name, value, limit_name, limit);
  }
  void below(const char* name, int value, const char* limit_name, int limit) const {
    if (value >= limit) wrong("{} is {}, but {} is {}", name, value, limit_name, limit);
  }
  // Layer lists are strictly ascending and inside the model.
  void layer_list(const char* name, const std::vector<int>& ids) const {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= c_.num_hidden_layers)
        wrong("{} has layer {}, but num_hidden_layers is {}", name, ids[i], c_.num_hidden_layers);
      if (i > 0 && ids[i] <= ids[i - 1]) wrong("{} is not ascending: {} comes after {}", name, ids[i], ids[i - 1]);
    }
  }

  void dimensions() const {
    constexpr const char* block = "the block size";
    multiple("hidden_size", c_.hidden_size, block, 32);
    multiple("head_dim", c_.head_dim, block, 32);
    multiple("q_lora_rank", c_.q_lora_rank, block, 32);
    multiple("moe_intermediate_size", c_.moe_intermediate_size, block, 32);
    multiple("index_head_dim", c_.index_head_dim, block, 32);
    multiple("engram_head_dim", c_.engram_head_dim, block, 32);
    multiple("num_attention_heads", c_.num_attention_heads, "o_groups", c_.o_groups);
    multiple("qk_rope_head_dim", c_.qk_rope_head_dim, "the size of a rotated pair", 2);
    at_most("qk_rope_head_dim", c_.qk_rope_head_dim, "head_dim", c_.head_dim);
    at_most("qk_rope_head_dim", c_.qk_rope_head_dim, "index_head_dim", c_.index_head_dim);
    at_most("num_experts_per_tok", c_.num_experts_per_tok, "n_routed_experts", c_.n_routed_experts);
    const int64_t tensors = int64_t{6} * c_.num_hidden_layers * c_.n_routed_experts;
    if (tensors > max_tensors)
      wrong("num_hidden_layers {} with n_routed_experts {} make {} expert tensors, above the limit of {}",
            c_.num_hidden_layers, c_.n_routed_experts, tensors, max_tensors);
  }

  void token_ids() const {
    below("engram_pad_token_id", c_.engram_pad_token_id, "vocab_size", c_.vocab_size);
    below("dspark_noise_token_id", c_.dspark_noise_token_id, "vocab_size", c_.vocab_size);
    at_most("engram_compressed_vocab_size", c_.engram_compressed_vocab_size, "vocab_size", c_.vocab_size);
    const std::pair<const char*, int> top[] = {{"bos_token_id", c_.bos_token_id},
                                               {"eos_token_id", c_.eos_token_id},
                                               {"pad_token_id", c_.pad_token_id},
                                               {"image_token_id", c_.image_token_id}};
    for (const auto& [name, id] : top)
      if (id >= c_.vocab_size) wrong("vocab_size is {}, but {} is {}", c_.vocab_size, name, id);
  }

  void attention_layers() const {
    const int layers = c_.num_hidden_layers;
    const size_t ratios = size_t(layers + c_.num_nextn_predict_layers);
    if (c_.compress_ratios.size() != ratios)
      wrong("compress_ratios has {} entries, but num_hidden_layers {} + num_nextn_predict_layers {} is {}",
            c_.compress_ratios.size(), layers, c_.num_nextn_predict_layers, ratios);
    layer_list("kv_source_layer_ids", c_.kv_source_layer_ids);
    layer_list("index_source_layer_ids", c_.index_source_layer_ids);
    for (size_t i = 0; i < ratios; ++i) {
      const int ratio = c_.compress_ratios[i];
      if (ratio > 2) wrong("compress_ratios[{}] is {}, and only 0, 1 and 2 are supported", i, ratio);
      if (int(i) >= layers && ratio != 0) wrong("compress_ratios[{}] is {}, but draft stages have 0", i, ratio);
    }
    for (const int l : c_.kv_source_layer_ids) {
      if (c_.ratio(l) == 0) wrong("kv_source_layer_ids has layer {}, but compress_ratios[{}] is 0", l, l);
      if (!c_.is_index_source(l)) wrong("kv_source_layer_ids has layer {}, but index_source_layer_ids does not", l);
    }
    for (int l = 0; l < layers; ++l) {
      if (c_.ratio(l) == 0) {
        if (c_.is_index_source(l)) wrong("index_source_layer_ids has layer {}, but compress_ratios[{}] is 0", l, l);
        continue;
      }
      const int source = c_.kv_source_of(l);
      if (source < 0)
        wrong("compress_ratios[{}] is {}, but kv_source_layer_ids has no layer up to {}", l, c_.ratio(l), l);
      if (c_.ratio(source) != c_.ratio(l))
        wrong("compress_ratios[{}] is {}, but its KV source, layer {}, has ratio {}", l, c_.ratio(l), source,
              c_.ratio(source));
    }
    candidates();
  }

  // Candidate blocks are blocks of the entries of one KV source, so their readers must read the same one.
  void candidates() const {
    const int source = c_.candidate_source_layer_id;
    if (c_.index_source_layer_ids.empty()) return;
    if (source < 0 || source >= c_.num_hidden_layers || !c_.is_index_source(source))
      wrong("candidate_source_layer_id is {}, which index_source_layer_ids does not have", source);
    for (const int l : c_.index_source_layer_ids)
      if (l > source && c_.kv_source_of(l) != c_.kv_source_of(source))
        wrong(
            "candidate_source_layer_id {} reads the KV of layer {}, but layer {} in index_source_layer_ids "
            "reads that of {}",
            source, c_.kv_source_of(source), l, c_.kv_source_of(l));
  }

  void engram() const {
    layer_list("engram_layer_ids", c_.engram_layer_ids);
    const size_t count = c_.engram_layer_ids.size();
    if (c_.engram_num_embeddings.size() != count)
      wrong("engram_num_embeddings has {} entries, but engram_layer_ids has {}", c_.engram_num_embeddings.size(),
            count);
    if (count > 64) wrong("engram_layer_ids has {} entries, above the limit of 64", count);
    for (size_t i = 0; i < count; ++i) {
      const std::vector<int64_t> primes = c_.engram_primes(int(i));
      const int64_t rows = std::accumulate(primes.begin(), primes.end(), int64_t{0});
      if (c_.engram_num_embeddings[i] != rows)
        wrong("engram_num_embeddings[{}] is {}, but the {} primes from engram_vocab_size {} on add up to {}", i,
              c_.engram_num_embeddings[i], primes.size(), c_.engram_vocab_size, rows);
    }
  }

  void drafts() const {
    layer_list("dspark_target_layer_ids", c_.dspark_target_layer_ids);
    if (c_.num_nextn_predict_layers == 0) return;
    at_most("dspark_num_experts_per_tok", c_.dspark_num_experts_per_tok, "dspark_n_routed_experts",
            c_.dspark_n_routed_experts);
    if (c_.dspark_target_layer_ids.empty())
      wrong("num_nextn_predict_layers is {}, but dspark_target_layer_ids is empty", c_.num_nextn_predict_layers);
  }

  const V41Config& c_;
  std::string what_;
};

bool is_prime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2)
    if (n % d == 0) return false;
  return true;
}

// The last entry <= layer of an ascending list, or -1.
int last_at_or_before(const std::vector<int>& ids, int layer) {
  const auto after = std::upper_bound(ids.begin(), ids.end(), layer);
  return after == ids.begin() ? -1 : *(after - 1);
}

}  // namespace

V41Config V41Config::parse(std::string_view text, std::string_view what) {
  const json::value root = parse_json(text, what);
  JsonFields top(root, std::string(what), "");
  refuse_other_models(top);
  V41Config c;
  c.bos_token_id = int(top.integer("bos_token_id", 0, max_vocab));
  c.eos_token_id = int(top.integer("eos_token_id", 0, max_vocab));
  c.pad_token_id = int(top.integer("pad_token_id", 0, max_vocab));
  if (top.has("image_token_id")) c.image_token_id = int(top.integer("image_token_id", 0, max_vocab));
  top.expect_boolean("tie_word_embeddings", false);
  for (const char* name : {"architectures", "dtype", "torch_dtype", "transformers_version", "auto_map"})
    top.ignore(name);
  c.has_vision = top.has("vision_config");
  top.ignore("vision_config");
  JsonFields quantization = top.object("quantization_config");
  parse_quantization(quantization);
  JsonFields text_config = top.object("text_config");
  parse_text(text_config, c);
  c.unknown_fields = top.unread();
  for (std::string& name : text_config.unread()) c.unknown_fields.push_back(std::move(name));
  Checker(c, std::string(what)).run();
  return c;
}

V41Config V41Config::load(const std::filesystem::path& file) { return parse(read_text_file(file), file.string()); }

bool V41Config::is_kv_source(int layer) const {
  return std::binary_search(kv_source_layer_ids.begin(), kv_source_layer_ids.end(), layer);
}

bool V41Config::is_index_source(int layer) const {
  return std::binary_search(index_source_layer_ids.begin(), index_source_layer_ids.end(), layer);
}

int V41Config::kv_source_of(int layer) const {
  return ratio(layer) == 0 ? -1 : last_at_or_before(kv_source_layer_ids, layer);
}

int V41Config::index_source_of(int layer) const {
  return ratio(layer) == 0 ? -1 : last_at_or_before(index_source_layer_ids, layer);
}

int V41Config::first_decoder_layer() const {
  return kv_source_layer_ids.empty() ? num_hidden_layers : kv_source_layer_ids.back();
}

int V41Config::engram_index(int layer) const {
  const auto i = std::find(engram_layer_ids.begin(), engram_layer_ids.end(), layer);
  return i == engram_layer_ids.end() ? -1 : int(i - engram_layer_ids.begin());
}

std::vector<int64_t> V41Config::engram_primes(int i) const {
  // Every search restarts at engram_vocab_size and skips used primes, so the columns simply get consecutive
  // primes.
  std::vector<int64_t> primes;
  int64_t p = engram_vocab_size - 1;
  for (int column = 0; column < (i + 1) * engram_columns(); ++column) {
    do ++p;
    while (!is_prime(p));
    if (column >= i * engram_columns()) primes.push_back(p);
  }
  return primes;
}

}  // namespace hadal
