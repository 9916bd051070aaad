#include "ops/indexer/indexer.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/row_format.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/top_k.h"
#include "ops/operators.h"

namespace hadal::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check(const IndexerArgs& args) {
  const int64_t rows = args.rows->rows, wide = int64_t{args.heads} * args.index_dim;
  HADAL_CHECK(args.index_dim % 32 == 0 && args.index_dim <= 256 && args.rope.dim <= args.index_dim);
  check_tensor(args.qr, DType::f32, rows, args.qr.cols, "qr");
  check_tensor(args.x, DType::f32, args.x_source == nullptr ? rows : 0, args.x.cols, "x");
  check_weight(args.wq_b, wide, args.qr.cols, "wq_b");
  check_weight(args.weights_proj, args.heads, args.x.cols, "weights_proj");
  check_tensor(args.selection.rows, DType::i32, 0, args.topk, "selection.rows");
  check_tensor(args.selection.count, DType::i32, 0, 1, "selection.count");
  HADAL_CHECK(args.keys.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, args.index_dim)));
  if (args.use != CandidateUse::none) {
    HADAL_CHECK(args.candidate_block_size > 0 && args.candidate_topk_blocks > 0);
    check_tensor(args.candidates.blocks, DType::i32, 0, args.candidate_topk_blocks, "candidates.blocks");
    check_tensor(args.candidates.count, DType::i32, 0, 1, "candidates.count");
  }
  if (args.query_trace) check_tensor(args.query_trace, DType::f32, rows, wide, "query_trace");
  if (args.score_trace) check_tensor(args.score_trace, DType::f32, rows, args.score_trace.cols, "score_trace");
}

// What a query row scores: all visible groups, or the groups of its candidate blocks.
struct Scope {
  int64_t visible = 0;
  const int32_t* blocks = nullptr;  // null: every visible group
  int64_t count = 0;                // groups to score

  // Group of the i-th score. Only the last block can be cut short, and it is the last of the list.
  int64_t group(int64_t i, int block_size) const {
    return blocks == nullptr ? i : int64_t{blocks[i / block_size]} * block_size + i % block_size;
  }
};

Scope scope_of(const IndexerArgs& args, int r) {
  Scope scope;
  scope.visible = (int64_t{args.rows->position[r]} + 1) / args.ratio;
  scope.count = scope.visible;
  if (args.use != CandidateUse::filter) return scope;
  const int32_t step_row = args.rows->step_row[r], n = *args.candidates.count.i32(step_row);
  if (n < 0) return scope;
  const int64_t size = args.candidate_block_size;
  scope.blocks = args.candidates.blocks.i32(step_row);
  scope.count = 0;
  for (int32_t i = 0; i < n; ++i) {
    const int64_t begin = scope.blocks[i] * size;
    scope.count += std::max<int64_t>(0, std::min(size, scope.visible - begin));
  }
  return scope;
}

// Block scores, and the block of the newest visible entry in any case.
void publish(const IndexerArgs& args, const float* scores, int64_t visible, int32_t step_row, float* block_score) {
  const int64_t size = args.candidate_block_size, blocks = (visible + size - 1) / size;
  int32_t* out = args.candidates.blocks.i32(step_row);
  int n = 0;
  int32_t& count = *args.candidates.count.i32(step_row);
  if (blocks <= args.candidate_topk_blocks) {
    count = -1;
  } else {
    for (int64_t b = 0; b < blocks; ++b) {
      float top = -kInfinity;
      for (int64_t g = b * size; g < std::min(visible, (b + 1) * size); ++g) top = std::max(top, scores[g]);
      block_score[b] = top;
    }
    block_score[blocks - 1] = kInfinity;
    count = n = select_top_k(block_score, blocks, args.candidate_topk_blocks, out);
  }
  std::fill(out + n, out + args.candidates.blocks.cols, -1);
}

// Everything that scoring needs about the rows of a step.
struct Queries {
  const std::byte* data = nullptr;  // [rows, heads * dim] in the kernel's order
  int64_t row_bytes = 0;
  const float* weight = nullptr;  // [rows, heads]
  Layout layout = Layout::split;
};

// Queries on the FP4 grid, and the heads' weights.
Queries make_queries(CpuContext& context, Scratch& scratch, const IndexerArgs& args) {
  const Kernels& kernel = kernels(context);
  const bool round = rounds(context);
  const int rows = args.rows->rows, dim = args.index_dim;
  const int64_t wide = int64_t{args.heads} * dim;
  float* q = scratch.get<float>(rows * wide);
  float* w = scratch.get<float>(int64_t{rows} * args.heads);
  const Input qr = prepare(context, scratch, args.qr.f32(), args.qr.cols, rows, args.wq_b);
  // The rows of x are those of its map: only what is read is prepared.
  const int x_rows = args.x_source == nullptr ? rows : static_cast<int>(args.x.rows);
  const Input x = prepare(context, scratch, args.x.f32(), args.x.cols, x_rows, args.weights_proj);
  multiply(context, {{.weight = &args.wq_b, .x = qr, .rows = rows, .y = q, .y_stride = wide, .round = true},
                     {.weight = &args.weights_proj,
                      .x = x,
                      .x_index = args.x_source,
                      .rows = rows,
                      .y = w,
                      .y_stride = args.heads,
                      .round = true}});

  Queries out;
  out.weight = w;
  out.layout = kernel.has_pairs && round ? Layout::pairs : Layout::split;
  out.row_bytes = wide * element_bytes(out.layout);
  auto* data = scratch.get<std::byte>(rows * out.row_bytes);
  out.data = data;
  const double factor = 1 / std::sqrt(static_cast<double>(dim) * args.heads);
  parallel_ranges(context, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float turn[512];
      cos_sin(args.rope, args.rows->position[r], turn);
      std::vector<uint8_t> packed(static_cast<size_t>(args.keys.row_bytes));
      for (int h = 0; h < args.heads; ++h) {
        float* part = q + r * wide + int64_t{h} * dim;
        kernel.rotate(part + dim - args.rope.dim, turn, args.rope.dim, false, round);
        pack_row(RowFormat::fp4_ue8m0_32, part, dim, packed.data());
        unpack_row(RowFormat::fp4_ue8m0_32, packed.data(), dim, part);
      }
      if (args.query_trace) std::copy_n(q + r * wide, wide, args.query_trace.f32(r));
      // The kernel wants channels in order: as they are, or in bf16.
      if (out.layout == Layout::pairs)
        kernel.prepare(q + r * wide, static_cast<int>(wide), Layout::pairs, InputRounding::none,
                       data + r * out.row_bytes);
      else
        std::copy_n(q + r * wide, wide, reinterpret_cast<float*>(data + r * out.row_bytes));
      for (int h = 0; h < args.heads; ++h) {
        float& weight = w[r * args.heads + h];
        weight = round_activation(context.numerics(), static_cast<float>(weight * factor));
      }
    }
  });
  return out;
}

// Query rows that see the same keys (one segment, no candidate lists) share a decoded tile of keys.
struct Batch {
  int begin = 0, end = 0;  // rows
  bool shared = false;
};

constexpr int kTileKeys = 16;
constexpr int kTaskKeys = 1024;  // a task's share of a row's keys
constexpr int kBatchRows = 32;

}  // namespace

void indexer(Context& any, const IndexerArgs& args) {
  CpuContext& context = cpu_context(any);
  check(args);
  const RowSet& rows = *args.rows;
  if (rows.rows == 0) return;
  const Kernels& kernel = kernels(context);
  const bool bf16_scores = context.numerics() == Numerics::official;
  Scratch scratch(context);
  const Queries queries = make_queries(context, scratch, args);

  std::vector<Scope> scopes;
  scopes.reserve(static_cast<size_t>(rows.rows));
  for (int r = 0; r < rows.rows; ++r) scopes.push_back(scope_of(args, r));
  const auto pages_of = [&](int r) {
    return args.segments->page_table + int64_t{rows.segment[r]} * args.segments->page_stride;
  };
  const int block_size = args.candidate_block_size;

  for (int begin = 0; begin < rows.rows;) {
    Batch batch{begin, begin + 1, scopes[static_cast<size_t>(begin)].blocks == nullptr};
    while (batch.shared && batch.end < rows.rows && batch.end - begin < kBatchRows &&
           rows.segment[batch.end] == rows.segment[begin] && scopes[static_cast<size_t>(batch.end)].blocks == nullptr)
      ++batch.end;
    begin = batch.end;
    const int count = batch.end - batch.begin;
    int64_t most = 0;
    for (int r = batch.begin; r < batch.end; ++r) most = std::max(most, scopes[static_cast<size_t>(r)].count);

    Scratch memory(context);
    const int64_t stride = (most + 63) / 64 * 64;
    float* scores = memory.get<float>(count * stride + 1);
    const int32_t* pages = pages_of(batch.begin);
    const int task_keys =
        static_cast<int>(std::clamp<int64_t>((most / (4 * context.pool().size()) + 63) / 64 * 64, 64, kTaskKeys));
    const auto tasks = static_cast<int>((most + task_keys - 1) / task_keys);
    context.pool().parallel_for(tasks, [&](int i) {
      const Scope& widest = scopes[static_cast<size_t>(batch.end - 1)];
      const void* query[kBatchRows];
      const float* weight[kBatchRows];
      float* score[kBatchRows];
      for (int64_t k0 = int64_t{i} * task_keys; k0 < std::min<int64_t>(most, int64_t{i + 1} * task_keys);
           k0 += kTileKeys) {
        IndexTask task;
        task.count = static_cast<int>(std::min<int64_t>(kTileKeys, most - k0));
        for (int k = 0; k < kTileKeys; ++k) {
          const int64_t group = widest.group(k0 + std::min(k, task.count - 1), block_size);
          task.keys[k] = args.keys.rows + PagedRows::physical(pages, args.keys.page_rows, group) * args.keys.row_bytes;
        }
        // Positions ascend in a batch: a row that does not see the tile is followed by rows that do.
        for (int r = batch.begin; r < batch.end; ++r) {
          if (scopes[static_cast<size_t>(r)].count <= k0) continue;
          query[task.rows] = queries.data + r * queries.row_bytes;
          weight[task.rows] = queries.weight + int64_t{r} * args.heads;
          score[task.rows++] = scores + (r - batch.begin) * stride + k0;
        }
        task.heads = args.heads;
        task.dim = args.index_dim;
        task.query = query;
        task.weight = weight;
        task.score = score;
        task.bf16_scores = bf16_scores;
        kernel.index_scores(task, queries.layout);
      }
    });

    const int64_t block_stride = args.use == CandidateUse::publish ? most / std::max(block_size, 1) + 1 : 0;
    float* block_scores = memory.get<float>(count * block_stride + 1);
    context.pool().parallel_for(count, [&](int i) {
      const int r = batch.begin + i;
      const Scope& scope = scopes[static_cast<size_t>(r)];
      const float* score = scores + i * stride;
      const int32_t step_row = rows.step_row[r];
      int32_t* out = args.selection.rows.i32(step_row);
      const int n = select_top_k(score, scope.count, args.topk, out);
      for (int k = 0; k < n; ++k)
        out[k] = static_cast<int32_t>(PagedRows::physical(pages, args.keys.page_rows, scope.group(out[k], block_size)));
      std::fill(out + n, out + args.selection.rows.cols, -1);
      *args.selection.count.i32(step_row) = n;
      if (args.use == CandidateUse::publish)
        publish(args, score, scope.visible, step_row, block_scores + i * block_stride);
      if (!args.score_trace) return;
      float* trace = args.score_trace.f32(r);
      HADAL_CHECK(scope.visible <= args.score_trace.cols);
      std::fill_n(trace, args.score_trace.cols, -kInfinity);
      for (int64_t k = 0; k < scope.count; ++k) trace[scope.group(k, block_size)] = score[k];
    });
  }
}

}  // namespace hadal::cpu
