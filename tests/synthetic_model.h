// A random checkpoint whose layers have the released model's shapes where kernels ask for them: 64 heads of 512 channels,
// 32 index heads of 128, FP8 and MXFP4 matrices in whole tiles. The golden checkpoints are too small for those kernels.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "checkpoint/json.h"
#include "checkpoint/synth_checkpoint.h"

namespace hadal {

class SyntheticModel {
 public:
  // `config` is the file to start from, a golden configuration with a vocabulary of 256.
  explicit SyntheticModel(const std::filesystem::path& config)
      : directory_(std::filesystem::temp_directory_path() / fmt::format("hadal-synthetic-{}", ::getpid())) {
    json::value value = parse_json(read_text_file(config), config.string());
    json::object& text = value.as_object()["text_config"].as_object();
    for (const auto& [name, number] : std::initializer_list<std::pair<const char*, int>>{{"hidden_size", 256},
                                                                                         {"num_attention_heads", 64},
                                                                                         {"head_dim", 512},
                                                                                         {"qk_rope_head_dim", 64},
                                                                                         {"q_lora_rank", 256},
                                                                                         {"o_groups", 2},
                                                                                         {"o_lora_rank", 256},
                                                                                         {"moe_intermediate_size", 128},
                                                                                         {"n_routed_experts", 16},
                                                                                         {"num_experts_per_tok", 4},
                                                                                         {"dspark_n_routed_experts", 8},
                                                                                         {"index_n_heads", 32},
                                                                                         {"index_head_dim", 128},
                                                                                         {"index_topk", 64},
                                                                                         {"candidate_topk_blocks", 16}})
      text[name] = number;
    const std::string rewritten = json::serialize(value);
    SynthOptions options;
    options.threads = 2;
    write_synthetic_checkpoint(V41Config::parse(rewritten, "synthetic"), rewritten, directory_, options);
  }
  ~SyntheticModel() { std::filesystem::remove_all(directory_); }
  SyntheticModel(const SyntheticModel&) = delete;
  SyntheticModel& operator=(const SyntheticModel&) = delete;

  const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_;
};

}  // namespace hadal
