#include "checkpoint/summary.h"

namespace hadal {

PartSummary& PartSummary::operator+=(const PartSummary& other) {
  tensors += other.tensors;
  parameters += other.parameters;
  bytes += other.bytes;
  return *this;
}

V41Summary summarize(const V41Config& c, const std::vector<ExpectedTensor>& inventory) {
  V41Summary s;
  for (const ExpectedTensor& t : inventory) {
    const PartSummary one{1, t.parameters(), int64_t(t.bytes())};
    s.parts[size_t(t.part)] += one;
    s.total += one;
  }
  const auto share = [](int64_t whole, int64_t chosen, int64_t of) { return whole / of * chosen; };
  for (const V41Part part : {V41Part::attention, V41Part::indexer, V41Part::router, V41Part::shared_expert,
                             V41Part::engram, V41Part::head}) {
    s.token_dense += s.part(part).bytes;
    s.active_parameters += s.part(part).parameters;
  }
  s.token_experts = share(s.part(V41Part::routed_expert).bytes, c.num_experts_per_tok, c.n_routed_experts);
  s.active_parameters += share(s.part(V41Part::routed_expert).parameters, c.num_experts_per_tok, c.n_routed_experts);
  const int64_t engram_rows = int64_t(c.engram_layer_ids.size()) * c.engram_columns();
  s.token_rows = 2 * int64_t{c.hidden_size} + engram_rows * (c.engram_head_dim + c.engram_head_dim / 32);
  s.active_parameters += c.hidden_size + engram_rows * c.engram_head_dim;
  if (c.draft_stages() > 0) {
    s.draft_row_bytes =
        s.part(V41Part::draft).bytes + s.part(V41Part::head).bytes +
        share(s.part(V41Part::draft_expert).bytes, c.dspark_num_experts_per_tok, c.dspark_n_routed_experts);
    // Of the Markov embedding it reads one row.
    s.draft_row_bytes -= 2 * int64_t{c.vocab_size - 1} * c.dspark_markov_rank;
  }
  const int64_t latent = c.head_dim / 2 + c.head_dim / 16, key = c.index_head_dim / 2 + c.index_head_dim / 32;
  for (const int l : c.kv_source_layer_ids) s.cache_bytes_per_token += double(latent + key) / c.ratio(l);
  s.window_bytes = int64_t{c.layers() + c.draft_stages()} * c.sliding_window * (c.head_dim + c.head_dim / 32);
  return s;
}

}  // namespace hadal
