#include "ops/sparse_attention/sparse_attention.h"

#include <vector>

#include "base/error.h"
#include "base/row_format.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {
namespace {

void check(const SparseAttentionArgs& args) {
  const int64_t wide = int64_t{args.heads} * args.head_dim;
  const auto latent_bytes = static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, args.head_dim));
  check_tensor(args.q, DType::f32, args.out->rows, wide, "q");
  check_tensor(args.o, DType::f32, args.out->rows, wide, "o");
  check_tensor(args.latent, DType::u8, args.in->rows, latent_bytes, "latent");
  HADAL_CHECK(args.ring.row_bytes == latent_bytes && args.ring.window > 0 && args.head_dim % 32 == 0);
  HADAL_CHECK(args.rope.dim % 2 == 0 && args.rope.dim <= args.head_dim && args.rope.dim <= 512);
  if (args.entries == nullptr) return;
  HADAL_CHECK(args.selection != nullptr);
  HADAL_CHECK(args.entries->row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_e4m3_16, args.head_dim)));
}

struct Keys {
  int count = 0;
  int window = 0;  // the first of them, from the window
};

// Where the keys of query row r lie, in their order: window by position, then selected entries.
Keys keys_of(const SparseAttentionArgs& args, int r, const uint8_t** keys) {
  const RowSet& in = *args.in;
  const int segment = args.out->segment[r];
  const int32_t position = args.out->position[r], committed = args.segments->first[segment];
  const int begin = in.seg_begin[segment], end = in.seg_begin[segment + 1];
  const int window = args.ring.window;
  const auto in_ring = [&](int32_t p) {
    HADAL_CHECK(p < committed && p >= committed - window);  // the ring holds the last committed positions only
    return args.ring.base + (int64_t{args.segments->slot[segment]} * window + p % window) * args.ring.row_bytes;
  };
  Keys n;
  if (args.bidirectional) {
    for (int32_t p = std::max(committed - window, 0); p < committed; ++p) keys[n.count++] = in_ring(p);
    for (int i = begin; i < end; ++i) keys[n.count++] = args.latent.u8(i);
  } else {
    const int32_t floor = args.floor == nullptr ? 0 : std::max(args.floor[segment], 0);
    const int32_t first_here = in.position[begin];
    for (int32_t p = std::max({0, position - window + 1, floor}); p <= position; ++p)
      keys[n.count++] = p >= first_here ? args.latent.u8(begin + (p - first_here)) : in_ring(p);
  }
  n.window = n.count;
  if (args.entries == nullptr) return n;
  const int32_t step_row = args.out->step_row[r];
  const int32_t count = *args.selection->count.i32(step_row);
  for (int32_t i = 0; i < count; ++i) {
    const int64_t row = args.selection->rows.i32(step_row)[i];
    HADAL_CHECK(row >= 0);
    keys[n.count++] = args.entries->rows + row * args.entries->row_bytes;
  }
  return n;
}

// In how many tasks the heads of a row are cut: whatever ends first. Every task decodes the row's keys, which costs about
// what four heads do with them. A head's result does not depend on its group.
int cuts_of_heads(int rows, int heads, int threads) {
  int best = 1, shortest = 0;
  for (int cuts = 1; cuts <= std::max(1, heads / 4); ++cuts) {
    const int turns = (rows * cuts + threads - 1) / threads, time = turns * (4 + (heads + cuts - 1) / cuts);
    if (cuts == 1 || time < shortest) best = cuts, shortest = time;
  }
  return best;
}

// What a worker asks for of the weights that follow, while it computes: a second-level cache of Zen 4. As much as memory gives
// in that time, 2 MB, drives out more than it brings.
constexpr int64_t kAhead = 1 << 20;

int most_keys(const SparseAttentionArgs& args) {
  int most = args.ring.window;
  if (args.bidirectional) {
    int rows = 0;
    for (int s = 0; s < args.segments->count; ++s)
      rows = std::max(rows, args.in->seg_begin[s + 1] - args.in->seg_begin[s]);
    most += rows;
  }
  return most + (args.entries == nullptr ? 0 : static_cast<int>(args.selection->rows.cols));
}

}  // namespace

void sparse_attention(Context& any, const SparseAttentionArgs& args) {
  CpuContext& context = cpu_context(any);
  check(args);
  const Kernels& kernel = kernels(context);
  const bool round = rounds(context);
  const int rows = args.out->rows, dim = args.head_dim, threads = context.pool().size();
  if (rows == 0) return;
  const Layout layout = kernel.has_pairs && round ? Layout::pairs : Layout::split;

  // A task is a row and some of its heads.
  const int cuts = cuts_of_heads(rows, args.heads, threads);
  const int heads = (args.heads + cuts - 1) / cuts, groups = (args.heads + heads - 1) / heads;
  const int most = most_keys(args);
  const int64_t bytes = (attention_scratch(most, dim, heads, layout) + 63) / 64 * 64;
  Scratch scratch(context);
  auto* memory = scratch.get<std::byte>(bytes * threads);
  const uint8_t** lists = scratch.get<const uint8_t*>(int64_t{most} * threads);

  context.pool().parallel_for(rows * groups, [&](int i, int worker) {
    const int r = i / groups, head = i % groups * heads;
    const uint8_t** keys = lists + int64_t{worker} * most;
    const Keys n = keys_of(args, r, keys);
    AttentionTask task;
    task.keys = keys;
    task.count = n.count;
    task.window_count = n.window;
    task.head_dim = dim;
    task.heads = std::min(heads, args.heads - head);
    task.scale = args.scale;
    task.sink = args.sink + head;
    task.q = args.q.f32(r) + int64_t{head} * dim;
    task.o = args.o.f32(r) + int64_t{head} * dim;
    task.round = round;
    // With several tasks a worker rows are many: products take the time of what reads weights next, not memory.
    task.reader = &context.read_ahead().reader(worker);
    task.ahead = rows * groups > threads ? 0 : kAhead;
    task.scratch = memory + worker * bytes;
    kernel.attention(task, layout);

    float turn[512];
    cos_sin(args.rope, args.out->position[r], turn);
    for (int h = 0; h < task.heads; ++h)
      kernel.rotate(task.o + int64_t{h} * dim + dim - args.rope.dim, turn, args.rope.dim, true, round);
  });
}

}  // namespace hadal::cpu
