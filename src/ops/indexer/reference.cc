// The indexer: scores, selection, candidate blocks.      spec 3.5
#include "ops/indexer/indexer.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/indexer/reference.h"
#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> index_queries(Numerics numerics, const IndexerArgs& args) {
  const int rows = args.rows->rows;
  std::vector<float> q = linear(numerics, args.wq_b, args.qr.f32(), rows, args.qr.cols);
  for (int r = 0; r < rows; ++r)
    for (int head = 0; head < args.heads; ++head)
      rotate(numerics, args.rope, q.data() + (int64_t{r} * args.heads + head) * args.index_dim, args.index_dim,
             args.rows->position[r]);
  return q;
}

std::vector<float> index_head_weights(Numerics numerics, const IndexerArgs& args) {
  const double factor = 1 / std::sqrt(static_cast<double>(args.index_dim) * args.heads);
  std::vector<float> w;
  for (int r = 0; r < args.rows->rows; ++r) {
    std::vector<float> row = linear(numerics, args.weights_proj, args.x.f32(mapped(args.x_source, r)), 1, args.x.cols);
    for (const float v : row) w.push_back(round_activation(numerics, v * factor));
  }
  return w;
}

// sum over heads, ascending, of w_h * relu( query_h . key ). `official` rounds the dot product, the product
// with w and the sum to bf16.
float index_score(Numerics numerics, const IndexerArgs& args, const float* query, const float* head_weights,
                  const float* key) {
  const bool rounded = numerics == Numerics::official;
  const auto round_score = [&](double x) { return rounded ? round_bf16(static_cast<float>(x)) : x; };
  double score = 0;
  for (int head = 0; head < args.heads; ++head) {
    const double product = round_score(dot(query + int64_t{head} * args.index_dim, key, args.index_dim));
    score += round_score(head_weights[head] * std::max(product, 0.0));
  }
  return static_cast<float>(round_score(score));
}

std::vector<int32_t> select_largest(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int32_t g) { return scores[g] == -kInfinity; });
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  if (static_cast<int64_t>(order.size()) > k) order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

namespace {

void store_list(const std::vector<int32_t>& list, const Tensor& to, int64_t row) {
  std::fill_n(to.i32(row), to.cols, -1);
  std::copy(list.begin(), list.end(), to.i32(row));
}

// Block scores: the largest of a block's entries; the block of the newest visible entry always wins. -1 as
// the count says that all blocks are candidates.
void publish(const IndexerArgs& args, const std::vector<float>& scores, int32_t step_row) {
  const int64_t size = args.candidate_block_size;
  const auto blocks = (static_cast<int64_t>(scores.size()) + size - 1) / size;
  if (blocks <= args.candidate_topk_blocks) {
    store_list({}, args.candidates.blocks, step_row);
    *args.candidates.count.i32(step_row) = -1;
    return;
  }
  std::vector<float> block_score(blocks, -kInfinity);
  for (size_t g = 0; g < scores.size(); ++g) block_score[g / size] = std::max(block_score[g / size], scores[g]);
  block_score[blocks - 1] = kInfinity;
  const std::vector<int32_t> chosen = select_largest(block_score, args.candidate_topk_blocks);
  store_list(chosen, args.candidates.blocks, step_row);
  *args.candidates.count.i32(step_row) = static_cast<int32_t>(chosen.size());
}

bool is_candidate(const IndexerArgs& args, int32_t step_row, int64_t group) {
  const int32_t count = *args.candidates.count.i32(step_row);
  if (count < 0) return true;
  const int32_t* blocks = args.candidates.blocks.i32(step_row);
  return std::find(blocks, blocks + count, group / args.candidate_block_size) != blocks + count;
}

void check(const IndexerArgs& args) {
  const int64_t rows = args.rows->rows, wide = int64_t{args.heads} * args.index_dim;
  check_shape(args.qr, DType::f32, rows, args.qr.cols, "qr");
  check_shape(args.x, DType::f32, args.x_source == nullptr ? rows : 0, args.x.cols, "x");
  check_weight(args.wq_b, wide, args.qr.cols, "wq_b");
  check_weight(args.weights_proj, args.heads, args.x.cols, "weights_proj");
  check_shape(args.selection.rows, DType::i32, 0, args.topk, "selection.rows");
  check_shape(args.selection.count, DType::i32, 0, 1, "selection.count");
  HADAL_CHECK(args.keys.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, args.index_dim)));
  if (args.use != CandidateUse::none) {
    HADAL_CHECK(args.candidate_block_size > 0 && args.candidate_topk_blocks > 0);
    check_shape(args.candidates.blocks, DType::i32, 0, args.candidate_topk_blocks, "candidates.blocks");
    check_shape(args.candidates.count, DType::i32, 0, 1, "candidates.count");
  }
  if (args.query_trace) check_shape(args.query_trace, DType::f32, rows, wide, "query_trace");
  if (args.score_trace) check_shape(args.score_trace, DType::f32, rows, args.score_trace.cols, "score_trace");
}

}  // namespace

void indexer(Context& context, const IndexerArgs& args) {
  check(args);
  const Numerics numerics = context.numerics();
  const RowSet& rows = *args.rows;
  const int64_t wide = int64_t{args.heads} * args.index_dim;

  std::vector<float> queries = index_queries(numerics, args);
  const std::vector<float> weights = index_head_weights(numerics, args);
  std::vector<uint8_t> packed(args.keys.row_bytes);
  Row key(args.index_dim);

  for (int r = 0; r < rows.rows; ++r) {
    const int32_t step_row = rows.step_row[r];
    float* query = queries.data() + r * wide;
    for (int head = 0; head < args.heads; ++head) {
      float* part = query + int64_t{head} * args.index_dim;
      pack_row(RowFormat::fp4_ue8m0_32, part, args.index_dim, packed.data());
      unpack_row(RowFormat::fp4_ue8m0_32, packed.data(), args.index_dim, part);
    }

    const int32_t* pages = args.segments->page_table + int64_t{rows.segment[r]} * args.segments->page_stride;
    const auto physical = [&](int64_t g) { return PagedRows::physical(pages, args.keys.page_rows, g); };
    std::vector<float> scores(visible_groups(rows.position[r], args.ratio), -kInfinity);
    for (size_t g = 0; g < scores.size(); ++g) {
      if (args.use == CandidateUse::filter && !is_candidate(args, step_row, g)) continue;
      unpack_row(RowFormat::fp4_ue8m0_32, args.keys.rows + physical(g) * args.keys.row_bytes, args.index_dim,
                 key.data());
      scores[g] = index_score(numerics, args, query, weights.data() + int64_t{r} * args.heads, key.data());
    }

    std::vector<int32_t> selected = select_largest(scores, args.topk);
    for (int32_t& g : selected) g = static_cast<int32_t>(physical(g));
    store_list(selected, args.selection.rows, step_row);
    *args.selection.count.i32(step_row) = static_cast<int32_t>(selected.size());
    if (args.use == CandidateUse::publish) publish(args, scores, step_row);

    if (args.query_trace) std::copy_n(query, wide, args.query_trace.f32(r));
    if (args.score_trace) {
      HADAL_CHECK(static_cast<int64_t>(scores.size()) <= args.score_trace.cols);
      std::fill_n(args.score_trace.f32(r), args.score_trace.cols, -kInfinity);
      std::copy(scores.begin(), scores.end(), args.score_trace.f32(r));
    }
  }
}

}  // namespace hadal::reference
