// Sizes that follow from a configuration: parameters and bytes by part, bytes read per token, bytes of state.
#pragma once

#include "checkpoint/deepseek_v41_inventory.h"

#include <array>
#include <cstdint>
#include <vector>

namespace hadal {

struct PartSummary {
  int64_t tensors = 0;
  int64_t parameters = 0;  // block scales are not counted
  int64_t bytes = 0;       // block scales are counted
  PartSummary& operator+=(const PartSummary& other);
};

struct V41Summary {
  std::array<PartSummary, v41_part_count> parts;
  PartSummary total;
  const PartSummary& part(V41Part p) const { return parts[size_t(p)]; }

  // What one decoded token reads, without drafts and without cached state.
  int64_t token_dense = 0;    // attention, indexer, router, shared experts, resident Engram, final norm and head
  int64_t token_experts = 0;  // num_experts_per_tok routed experts in every layer
  int64_t token_rows = 0;     // one embedding row and the Engram rows
  int64_t token_bytes() const { return token_dense + token_experts + token_rows; }
  int64_t active_parameters = 0;  // of the same
  int64_t draft_row_bytes = 0;    // what one draft row reads: every stage, its experts, and the head again

  // Packed cache rows: window latent E4M3 + UE8M0 per 32; compressed latent E2M1 + E4M3 per 16; index key E2M1 + UE8M0 per 32.
  double cache_bytes_per_token = 0;  // grows with the context
  int64_t window_bytes = 0;          // fixed, per request: one ring per layer and draft stage
};

V41Summary summarize(const V41Config& config, const std::vector<ExpectedTensor>& inventory);

}  // namespace hadal
