// The compressor: latents of groups of tokens, their index keys, and where both are kept.      spec 3.4, 3.5
#include "ops/compressor/compressor.h"

#include <algorithm>

#include "ops/compressor/reference.h"
#include "ops/operators.h"
#include "ops/reference_math.h"

namespace hadal::reference {

std::vector<float> index_key(Numerics numerics, const CompressorArgs& args, const float* c, int32_t group) {
  Row key = linear(numerics, args.wk, c, 1, args.head_dim);
  rms_norm(numerics, key.data(), args.k_norm, args.index_dim, args.norm_eps);
  rotate(numerics, args.rope, key.data(), args.index_dim, group * args.ratio);
  return key;
}

std::vector<float> compressed_entry(Numerics numerics, const CompressorArgs& args, const float* c, int32_t group) {
  Row entry(c, c + args.head_dim);
  rotate(numerics, args.rope, entry.data(), args.head_dim, group * args.ratio);
  return entry;
}

namespace {

// Ratio 2: per channel, the softmax over the two tokens' b weighs their a. `first` and `second` are (a, b) of
// a token.
Row pool(const float* first, const float* second, int dim) {
  Row pooled(dim);
  for (int i = 0; i < dim; ++i) {
    const double b0 = first[dim + i], b1 = second[dim + i];
    const double top = std::max(b0, b1);
    const double e0 = std::exp(b0 - top), e1 = std::exp(b1 - top);
    pooled[i] = static_cast<float>((e0 * first[i] + e1 * second[i]) / (e0 + e1));
  }
  return pooled;
}

void check(const CompressorArgs& args) {
  const int64_t rows = args.rows->rows, dim = args.head_dim;
  HADAL_CHECK(args.ratio == 1 || args.ratio == 2);
  check_shape(args.x, DType::f32, rows, args.x.cols, "x");
  check_weight(args.wkv, dim, args.x.cols, "wkv");
  check_weight(args.wk, args.index_dim, dim, "wk");
  if (args.ratio == 2) {
    check_weight(args.wgate, dim, args.x.cols, "wgate");
    check_shape(args.ab, DType::f32, rows, 2 * dim, "ab");
  }
  if (args.latent) check_shape(args.latent, DType::f32, rows, dim, "latent");
  HADAL_CHECK(args.entries.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_e4m3_16, args.head_dim)));
  HADAL_CHECK(args.keys.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, args.index_dim)));
}

// norm( bf16( pooled ) ), then key and entry into the owner's pools.
void append(Numerics numerics, const CompressorArgs& args, Row c, int row, int32_t group) {
  for (float& v : c) v = hadal::round_activation(numerics, v);
  rms_norm(numerics, c.data(), args.norm, args.head_dim, args.norm_eps);
  if (args.latent) std::copy(c.begin(), c.end(), args.latent.f32(row));

  const int32_t* pages = args.segments->page_table + int64_t{args.rows->segment[row]} * args.segments->page_stride;
  const Row key = index_key(numerics, args, c.data(), group);
  pack_row(RowFormat::fp4_ue8m0_32, key.data(), args.index_dim,
           args.keys.rows + PagedRows::physical(pages, args.keys.page_rows, group) * args.keys.row_bytes);
  const Row entry = compressed_entry(numerics, args, c.data(), group);
  pack_row(RowFormat::fp4_e4m3_16, entry.data(), args.head_dim,
           args.entries.rows + PagedRows::physical(pages, args.entries.page_rows, group) * args.entries.row_bytes);
}

}  // namespace

void compressor(Context& context, const CompressorArgs& args) {
  check(args);
  const Numerics numerics = context.numerics();
  const RowSet& rows = *args.rows;
  const int dim = args.head_dim;

  const std::vector<float> a = linear_f32(numerics, args.wkv, args.x.f32(), rows.rows, args.x.cols);
  if (args.ratio == 1) {
    for (int r = 0; r < rows.rows; ++r)
      append(numerics, args, Row(a.begin() + int64_t{r} * dim, a.begin() + int64_t{r + 1} * dim), r, rows.position[r]);
    return;
  }

  const std::vector<float> b = linear_f32(numerics, args.wgate, args.x.f32(), rows.rows, args.x.cols);
  for (int r = 0; r < rows.rows; ++r) {
    std::copy_n(a.begin() + int64_t{r} * dim, dim, args.ab.f32(r));
    std::copy_n(b.begin() + int64_t{r} * dim, dim, args.ab.f32(r) + dim);
  }
  for (int s = 0; s < args.segments->count; ++s) {
    for (int r = rows.seg_begin[s]; r < rows.seg_begin[s + 1]; ++r) {
      const int32_t position = rows.position[r];
      HADAL_CHECK(position == args.segments->first[s] + (r - rows.seg_begin[s]));
      if (position % 2 == 0) continue;  // waits for its second token
      const bool first_is_here = r > rows.seg_begin[s];
      HADAL_CHECK(first_is_here || args.pending != nullptr);
      const float* first =
          first_is_here ? args.ab.f32(r - 1) : args.pending + int64_t{args.segments->slot[s]} * 2 * dim;
      append(numerics, args, pool(first, args.ab.f32(r), dim), r, position / 2);
    }
  }
}

}  // namespace hadal::reference
