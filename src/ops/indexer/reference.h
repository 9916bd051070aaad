// The stages of the indexer on their own: tests check a backend's queries first and then its scores of these
// queries.
//                                                                                                         spec
//                                                                                                         3.5
#pragma once

#include <vector>

#include "ops/indexer/indexer.h"

namespace hadal::reference {

// [rows, heads * index_dim]: rope per head( wq_b qr, p ), in front of Q2.
std::vector<float> index_queries(Numerics numerics, const IndexerArgs& args);
// [rows, heads]: bf16( bf16(weights_proj x) * index_dim^-.5 * heads^-.5 )
std::vector<float> index_head_weights(Numerics numerics, const IndexerArgs& args);
// Entries that a query at `position` may see: groups 0 .. n - 1.
inline int64_t visible_groups(int32_t position, int ratio) { return (int64_t{position} + 1) / ratio; }
// Score of one key [index_dim]; `query` [heads * index_dim] after Q2.
float index_score(Numerics numerics, const IndexerArgs& args, const float* query, const float* head_weights,
                  const float* key);
// Groups of the k largest finite scores, lower group first among equals, in ascending order.
std::vector<int32_t> select_largest(const std::vector<float>& scores, int64_t k);

}  // namespace hadal::reference
