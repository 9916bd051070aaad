// Attention over the window and the selected entries.      spec 3.3, 3.6, 5.2
#include "ops/sparse_attention/sparse_attention.h"

#include <algorithm>

#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {
namespace {

// The keys of query row r in their order: window ascending by position, then selected entries ascending
// (spec 10.3).
std::vector<Row> keys_of(const SparseAttentionArgs& args, int r) {
  const RowSet& in = *args.in;
  const int segment = args.out->segment[r];
  const int32_t position = args.out->position[r];
  const int32_t committed = args.segments->first[segment];
  const int32_t floor = args.floor == nullptr ? 0 : std::max(args.floor[segment], 0);
  const int in_begin = in.seg_begin[segment], in_end = in.seg_begin[segment + 1];
  const int window = args.ring.window;

  std::vector<Row> keys;
  const auto add = [&](RowFormat format, const uint8_t* packed) {
    keys.emplace_back(args.head_dim);
    unpack_row(format, packed, args.head_dim, keys.back().data());
  };
  const auto add_from_ring = [&](int32_t p) {
    HADAL_CHECK(p < committed && p >= committed - window);  // the ring holds the last committed positions only
    const int64_t slot = int64_t{args.segments->slot[segment]} * window + p % window;
    add(RowFormat::fp8_ue8m0_32, args.ring.base + slot * args.ring.row_bytes);
  };

  if (args.bidirectional) {
    // Every filled slot and every row of the segment: no window mask (spec 5.2, 10.9).
    for (int32_t p = std::max(committed - window, 0); p < committed; ++p) add_from_ring(p);
    for (int i = in_begin; i < in_end; ++i) add(RowFormat::fp8_ue8m0_32, args.latent.u8(i));
  } else {
    for (int32_t p = std::max({0, position - window + 1, floor}); p <= position; ++p) {
      const int i = in_begin + (p - in.position[in_begin]);
      if (i >= in_begin)
        add(RowFormat::fp8_ue8m0_32, args.latent.u8(i));
      else
        add_from_ring(p);
    }
  }

  if (args.entries != nullptr) {
    const int32_t step_row = args.out->step_row[r];
    for (int32_t i = 0; i < *args.selection->count.i32(step_row); ++i) {
      const int64_t row = args.selection->rows.i32(step_row)[i];
      HADAL_CHECK(row >= 0);
      add(RowFormat::fp4_e4m3_16, args.entries->rows + row * args.entries->row_bytes);
    }
  }
  return keys;
}

// o = bf16( sum_t bf16(e_t) v_t / (sum_t e_t + exp(sink - M)) ); the sink is in the denominator only.
void attend(Numerics numerics, const SparseAttentionArgs& args, const float* q, const std::vector<Row>& keys,
            float sink, float* o) {
  std::vector<double> score;
  score.reserve(keys.size());
  for (const Row& key : keys) score.push_back(dot(q, key.data(), args.head_dim) * args.scale);
  double top = -1e30;
  for (const double l : score) top = std::max(top, l);

  std::vector<double> sum(args.head_dim);
  double z = 0;
  for (size_t t = 0; t < keys.size(); ++t) {
    const double e = std::exp(score[t] - top);
    z += e;
    const double probability = numerics == Numerics::fp32 ? e : round_activation(numerics, e);
    for (int i = 0; i < args.head_dim; ++i) sum[i] += probability * keys[t][i];
  }
  z += std::exp(sink - top);
  for (int i = 0; i < args.head_dim; ++i) o[i] = round_activation(numerics, sum[i] / z);
}

void check(const SparseAttentionArgs& args) {
  const int64_t wide = int64_t{args.heads} * args.head_dim;
  const auto latent_bytes = static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, args.head_dim));
  check_shape(args.q, DType::f32, args.out->rows, wide, "q");
  check_shape(args.o, DType::f32, args.out->rows, wide, "o");
  check_shape(args.latent, DType::u8, args.in->rows, latent_bytes, "latent");
  HADAL_CHECK(args.ring.row_bytes == latent_bytes && args.ring.window > 0);
  if (args.entries == nullptr) return;
  HADAL_CHECK(args.selection != nullptr);
  HADAL_CHECK(args.entries->row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_e4m3_16, args.head_dim)));
}

}  // namespace

void sparse_attention(Context& context, const SparseAttentionArgs& args) {
  check(args);
  for (int r = 0; r < args.out->rows; ++r) {
    const std::vector<Row> keys = keys_of(args, r);
    for (int head = 0; head < args.heads; ++head) {
      const int64_t at = int64_t{head} * args.head_dim;
      float* o = args.o.f32(r) + at;
      attend(context.numerics(), args, args.q.f32(r) + at, keys, args.sink[head], o);
      rotate(context.numerics(), args.rope, o, args.head_dim, args.out->position[r], /*inverse=*/true);
    }
  }
}

}  // namespace hadal::reference
