// Every tensor that a DeepSeek-V4.1 checkpoint of a given configuration must have.
#pragma once

#include "checkpoint/deepseek_v41_config.h"
#include "checkpoint/safetensors.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hadal {

enum class V41Part : uint8_t {
  embedding,  // embed
  head,       // final norm and head
  attention,  // attention with its compressor, norms and hyper-connections of the layer
  indexer,    // index keys, index queries, weights_proj
  router,     // gate
  shared_expert,
  routed_expert,
  engram,        // resident part: wkv, q_weight, k_weight
  engram_table,  // embed: gathered by row
  draft,         // mtp.*, without its routed experts
  draft_expert,
  vision,  // recognised and left alone
};
constexpr int v41_part_count = int(V41Part::vision) + 1;
std::string_view part_name(V41Part part);

struct ExpectedTensor {
  std::string name;
  TensorType type;
  std::vector<int64_t> shape;
  V41Part part;
  bool is_scale = false;  // an F8_E8M0 block scale; follows its weight in the list
  size_t bytes() const;
  // Weights that it holds: 2 per byte for packed FP4 (I8), none for scales.
  int64_t parameters() const;
};

// Text, Engram and draft tensors in the order of the published layout: embed, layers, norm, head, mtp.
// Shapes: dense linear X [N, K]: X.weight F8_E4M3 [N, K], X.scale F8_E8M0 [ceil(N/32), ceil(K/32)]; routed
// expert X [N, K]: X.weight I8 [N, K/2], X.scale F8_E8M0 [N, K/32].
std::vector<ExpectedTensor> v41_inventory(const V41Config& config);

// The vision tower of the release: 266 BF16 tensors. Their shapes are not validated, only their names are
// known.
bool is_vision_tensor(std::string_view name);
constexpr int64_t v41_vision_tensors = 266;
constexpr int64_t v41_vision_bytes = 970'536'960;

}  // namespace hadal
