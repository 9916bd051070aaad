// The tensors of a checkpoint bound to what the model's formulas call them.      spec 2.2
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "ops/operators.h"

namespace hadal::deepseek_v41 {

struct AttentionWeights {
  Weight wq_a, wq_b, wkv, wo_a, wo_b;
  const uint16_t* q_norm = nullptr;
  const uint16_t* kv_norm = nullptr;
  const float* sink = nullptr;
};

struct MoeWeights {
  Weight gate;
  const float* bias = nullptr;
  const float* bias_vl = nullptr;
  std::unique_ptr<ExpertStore> experts;
  FeedForward shared;
};

// One transformer block: a backbone layer or a draft stage.
struct BlockWeights {
  HyperConnectionWeights attn_mix, ffn_mix;
  const uint16_t* attn_norm = nullptr;
  const uint16_t* ffn_norm = nullptr;
  AttentionWeights attention;
  MoeWeights moe;
};

struct CompressorWeights {
  Weight wkv, wgate, wk;
  const uint16_t* norm = nullptr;
  const uint16_t* k_norm = nullptr;
};

struct IndexerWeights {
  Weight wq_b, weights_proj;
};

struct EngramWeights {
  EngramTable table;
  Weight wkv;
  const uint16_t* q_weight = nullptr;
  const uint16_t* k_weight = nullptr;
};

struct DraftWeights {
  std::vector<BlockWeights> stages;
  Weight main_proj, markov_embed, markov_head, confidence;
  const uint16_t* main_norm = nullptr;
  const uint16_t* norm = nullptr;
};

struct ModelWeights {
  Weight embed, head;
  const uint16_t* norm = nullptr;
  std::vector<BlockWeights> layers;
  std::vector<CompressorWeights> compressors;  // in the order of kv_source_layer_ids
  std::vector<IndexerWeights> indexers;        // in the order of index_source_layer_ids
  std::vector<EngramWeights> engrams;          // in the order of engram_layer_ids
  DraftWeights draft;
};

// Binds every tensor where the operators read it: in place on a CPU, on a GPU in the device's memory, packed where it has
// a layout of its own. Block scales of the dense weights are checked here, those of a routed expert when it is first used
// or loaded, those of Engram rows by `hadal inspect --verify` only. Before anything is loaded it throws out_of_memory when
// the weights do not fit, and unsupported when the backend has no layout for wo_a's groups.
ModelWeights bind_weights(const Checkpoint& checkpoint, Context& context, const Operators& operators);

}  // namespace hadal::deepseek_v41
