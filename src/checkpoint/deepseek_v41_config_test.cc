#include "checkpoint/deepseek_v41_config.h"

#include "checkpoint/summary.h"
#include "checkpoint/test_support.h"

#include <numeric>

namespace hadal {
namespace {

using test::error_of;
using test::expect_contains;
using test::source_path;

std::string golden_text() { return read_text_file(source_path("tests/goldens/v41-a/config.json")); }

// The configuration of golden "a" with one change, as text. `path` is "text_config.hidden_size" or a top-level name.
std::string changed(std::string_view path, const json::value& value, bool remove = false) {
  json::value root = json::parse(golden_text());
  json::object* object = &root.as_object();
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    object = &object->at(path.substr(0, dot)).as_object();
    path.remove_prefix(dot + 1);
  }
  if (remove)
    object->erase({path.data(), path.size()});
  else
    (*object)[{path.data(), path.size()}] = value;
  return json::serialize(root);
}

std::string refusal(std::string_view path, const json::value& value, ErrorKind kind = ErrorKind::invalid_data) {
  return error_of([&] { V41Config::parse(changed(path, value)); }, kind);
}

TEST(V41Config, ReadsTheRelease) {
  const V41Config c = V41Config::load(source_path("configs/v41-flash.json"));
  EXPECT_EQ(c.layers(), 40);
  EXPECT_EQ(c.draft_stages(), 3);
  EXPECT_EQ(c.hidden_size, 5120);
  EXPECT_EQ(c.rms_norm_eps, 1e-20);
  EXPECT_EQ(c.gate_temp, 1.0);
  EXPECT_EQ(c.rope_scaling.original_max_position_embeddings, 65536);
  EXPECT_EQ(c.first_decoder_layer(), 20);
  EXPECT_TRUE(c.unknown_fields.empty());
  EXPECT_EQ(c.kv_source_of(1), -1);
  EXPECT_EQ(c.kv_source_of(13), 8);
  EXPECT_EQ(c.kv_source_of(39), 20);
  EXPECT_EQ(c.index_source_of(31), 28);
  EXPECT_EQ(c.engram_index(14), 1);
  EXPECT_EQ(c.engram_index(2), -1);
  EXPECT_EQ(c.engram_columns(), 24);
  const std::vector<int64_t> primes = c.engram_primes(0);
  EXPECT_EQ(primes.size(), 24u);
  EXPECT_EQ(std::accumulate(primes.begin(), primes.end(), int64_t{0}), 384006168);
}

TEST(V41Config, EngramPrimesOfAGolden) {
  const V41Config c = V41Config::parse(golden_text());
  EXPECT_EQ(c.engram_primes(0), (std::vector<int64_t>{1009, 1013, 1019, 1021, 1031, 1033}));
  EXPECT_EQ(c.engram_primes(1), (std::vector<int64_t>{1039, 1049, 1051, 1061, 1063, 1069}));
}

TEST(V41Config, EveryFieldIsRequiredOrHasOneValue) {
  // Fields that Hadal does not need; the rest must be there, or name the only supported behaviour.
  const std::set<std::string> optional = {"num_key_value_heads", "n_shared_experts",    "scoring_func",
                                          "topk_method",         "norm_topk_prob",      "hidden_act",
                                          "attention_bias",      "attention_dropout",   "initializer_range",
                                          "use_cache",           "tie_word_embeddings", "model_type"};
  const json::value root = json::parse(golden_text());
  for (const auto& m : root.at("text_config").as_object()) {
    const std::string name(m.key().data(), m.key().size());
    const std::string text = changed("text_config." + name, nullptr, true);
    if (optional.contains(name)) {
      EXPECT_NO_THROW(V41Config::parse(text)) << name;
    } else {
      const std::string message = error_of([&] { V41Config::parse(text, "config.json"); });
      EXPECT_EQ(message, "config.json: text_config." + name + " is missing");
    }
  }
}

TEST(V41Config, RefusesWrongTypesAndRangesOfEveryField) {
  const std::set<std::string> ignored = {"attention_dropout", "initializer_range", "use_cache"};
  const json::value root = json::parse(golden_text());
  for (const auto& m : root.at("text_config").as_object()) {
    const std::string name(m.key().data(), m.key().size());
    if (ignored.contains(name)) continue;
    for (const json::value& bad : {json::value(nullptr), json::value(-7), json::value("x"), json::value(1e300),
                                   json::value(json::array{-1}), json::value(json::object{})})
      expect_contains(refusal("text_config." + name, bad), name);
  }
}

TEST(V41Config, RefusesContradictionsWithBothValues) {
  const auto both = [](std::string_view path, const json::value& value, std::string_view first,
                       std::string_view second) {
    const std::string message = refusal(path, value);
    expect_contains(message, first);
    expect_contains(message, second);
  };
  both("text_config.hidden_size", 130, "hidden_size is 130", "32");
  both("text_config.num_attention_heads", 6, "num_attention_heads is 6", "o_groups, 4");
  both("text_config.qk_rope_head_dim", 66, "qk_rope_head_dim is 66", "head_dim, 64");
  both("text_config.qk_rope_head_dim", 15, "qk_rope_head_dim is 15", "2");
  both("text_config.num_experts_per_tok", 9, "num_experts_per_tok is 9", "n_routed_experts, 8");
  both("text_config.num_hidden_layers", 9, "compress_ratios has 13 entries", "num_hidden_layers 9");
  both("text_config.compress_ratios", json::array{0, 0, 4, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0}, "compress_ratios[2] is 4",
       "0, 1 and 2");
  both("text_config.compress_ratios", json::array{0, 0, 2, 1, 2, 2, 1, 1, 1, 1, 0, 0, 0}, "compress_ratios[3] is 1",
       "ratio 2");
  both("text_config.compress_ratios", json::array{0, 2, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0}, "compress_ratios[1] is 2",
       "up to 1");
  both("text_config.compress_ratios", json::array{0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 1, 0}, "compress_ratios[11] is 1",
       "draft");
  both("text_config.kv_source_layer_ids", json::array{2, 4, 10}, "has layer 10", "num_hidden_layers is 10");
  both("text_config.kv_source_layer_ids", json::array{4, 2, 6}, "not ascending", "2 comes after 4");
  both("text_config.kv_source_layer_ids", json::array{2, 5, 6}, "layer 5", "index_source_layer_ids");
  both("text_config.index_source_layer_ids", json::array{1, 2, 4, 6, 8}, "layer 1", "compress_ratios[1] is 0");
  both("text_config.candidate_source_layer_id", 7, "candidate_source_layer_id is 7", "index_source_layer_ids");
  both("text_config.candidate_source_layer_id", 4, "reads the KV of layer 4", "layer 6");
  both("text_config.engram_num_embeddings", json::array{6126, 6333}, "is 6333", "6332");
  both("text_config.engram_num_embeddings", json::array{6126}, "has 1 entries", "has 2");
  both("text_config.engram_pad_token_id", 512, "engram_pad_token_id is 512", "vocab_size is 512");
  both("text_config.engram_pad_id", 3, "engram_pad_id is 3", "engram_pad_token_id is 2");
  both("text_config.engram_compressed_vocab_size", 513, "is 513", "vocab_size, 512");
  both("text_config.dspark_target_layer_ids", json::array{7, 8, 10}, "has layer 10", "is 10");
  both("text_config.dspark_target_layer_ids", json::array{}, "num_nextn_predict_layers is 3", "empty");
  both("text_config.dspark_num_experts_per_tok", 5, "is 5", "dspark_n_routed_experts, 4");
  both("text_config.n_routed_experts", 16384, "above", "n_routed_experts");
  both("text_config.scoring_func", "sigmoid", "\"sigmoid\"", "sqrtsoftplus");
  both("text_config.tie_word_embeddings", true, "is true", "false");
  both("text_config.rope_scaling.rope_type", "linear", "\"linear\"", "yarn");
  both("eos_token_id", 600, "512", "eos_token_id is 600");
  both("quantization_config.weight_block_size", json::array{128, 128}, "[128,128]", "[32,32]");
  both("quantization_config.scale_fmt", "float", "\"float\"", "ue8m0");
  both("quantization_config.expert_dtype", "fp8", "\"fp8\"", "fp4");
}

TEST(V41Config, RefusesOtherModelsByName) {
  expect_contains(refusal("model_type", "llama", ErrorKind::unsupported), "\"llama\": not a DeepSeek model");
  expect_contains(refusal("model_type", "deepseek_v3", ErrorKind::unsupported), "\"deepseek_v3\": this DeepSeek model");
  expect_contains(refusal("model_type", "deepseek_v41_text"), "bare text_config");
  expect_contains(error_of([] { V41Config::parse(R"({"peft_type":"LORA"})"); }, ErrorKind::unsupported), "LoRA");
  expect_contains(error_of([] { V41Config::parse(R"({"dim":1,"n_layers":2})"); }), "inference/config.json");
  expect_contains(error_of([] { V41Config::parse("[1]"); }), "expected an object");
  expect_contains(error_of([] { V41Config::parse(R"({"model_type":"a","model_type":"b"})"); }), "appears twice");
}

TEST(V41Config, ListsUnknownFields) {
  const V41Config c = V41Config::parse(changed("text_config.per_head_norm", true));
  EXPECT_EQ(c.unknown_fields, std::vector<std::string>{"text_config.per_head_norm"});
  EXPECT_TRUE(V41Config::parse(changed("vision_config", json::object{})).has_vision);
}

TEST(V41Inventory, HasThePublishedTotals) {
  const V41Config c = V41Config::load(source_path("configs/v41-flash.json"));
  const V41Summary s = summarize(c, v41_inventory(c));
  EXPECT_EQ(s.total.tensors, 95'819);
  EXPECT_EQ(s.total.bytes, 509'315'486'040);
  EXPECT_EQ(s.total.tensors + v41_vision_tensors, 96'085);
  EXPECT_EQ(s.total.bytes + v41_vision_bytes, 510'286'023'000);
  EXPECT_EQ(s.part(V41Part::engram_table).parameters, 196'613'849'600);
  EXPECT_EQ(s.part(V41Part::draft).parameters + s.part(V41Part::draft_expert).parameters, 14'225'362'530);
  EXPECT_EQ(s.total.parameters, 551'880'835'184 + 196'613'849'600 + 14'225'362'530);
  EXPECT_EQ(s.part(V41Part::engram_table).bytes, 202'758'032'400);
  EXPECT_EQ(s.part(V41Part::engram).bytes, 315'043'840);
  EXPECT_EQ(s.part(V41Part::draft).bytes + s.part(V41Part::draft_expert).bytes, 7'932'874'632);
  EXPECT_EQ(s.token_experts, int64_t{40} * 6 * 18'800'640);
  EXPECT_EQ(s.token_rows, 2 * 5120 + 48 * 264);
  EXPECT_EQ(s.cache_bytes_per_token, 890);
}

TEST(V41Inventory, TypesHaveThePublishedBytes) {
  std::map<TensorType, int64_t> bytes;
  for (const ExpectedTensor& t : v41_inventory(V41Config::load(source_path("configs/v41-flash.json"))))
    bytes[t.type] += int64_t(t.bytes());
  EXPECT_EQ(bytes[TensorType::bf16], 3'952'883'712 - v41_vision_bytes);
  EXPECT_EQ(bytes[TensorType::f32], 169'229'128);
  EXPECT_EQ(bytes[TensorType::f8_e4m3], 204'015'223'296);
  EXPECT_EQ(bytes[TensorType::f8_e8m0], 23'563'015'184);
  EXPECT_EQ(bytes[TensorType::i8], 278'585'671'680);
}

}  // namespace
}  // namespace hadal
