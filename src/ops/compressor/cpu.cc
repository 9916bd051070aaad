#include "ops/compressor/compressor.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "ops/cpu/linear.h"
#include "ops/operators.h"

namespace hadal::cpu {
namespace {

void check(const CompressorArgs& args) {
  const int64_t rows = args.rows->rows, dim = args.head_dim;
  HADAL_CHECK(args.ratio == 1 || args.ratio == 2);
  HADAL_CHECK(args.rope.dim % 2 == 0 && args.rope.dim <= args.index_dim && args.rope.dim <= dim &&
              args.rope.dim <= 512);
  check_tensor(args.x, DType::f32, rows, args.x.cols, "x");
  check_weight(args.wkv, dim, args.x.cols, "wkv");
  check_weight(args.wk, args.index_dim, dim, "wk");
  if (args.ratio == 2) {
    check_weight(args.wgate, dim, args.x.cols, "wgate");
    check_tensor(args.ab, DType::f32, rows, 2 * dim, "ab");
  }
  if (args.latent) check_tensor(args.latent, DType::f32, rows, dim, "latent");
  HADAL_CHECK(args.entries.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_e4m3_16, args.head_dim)));
  HADAL_CHECK(args.keys.row_bytes == static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, args.index_dim)));
}

// A group that this step completes.
struct Group {
  int row;  // of its last token
  int32_t number;
  const float* first;  // ratio 2: (a, b) of its first token
};

std::vector<Group> groups_of(const CompressorArgs& args) {
  const RowSet& rows = *args.rows;
  std::vector<Group> groups;
  for (int s = 0; s < args.segments->count; ++s) {
    for (int r = rows.seg_begin[s]; r < rows.seg_begin[s + 1]; ++r) {
      const int32_t p = rows.position[r];
      HADAL_CHECK(p == args.segments->first[s] + (r - rows.seg_begin[s]));
      if (args.ratio == 1) {
        groups.push_back({r, p, nullptr});
      } else if (p % 2 == 1) {
        const bool here = r > rows.seg_begin[s];
        HADAL_CHECK(here || args.pending != nullptr);
        groups.push_back(
            {r, p / 2, here ? args.ab.f32(r - 1) : args.pending + int64_t{args.segments->slot[s]} * 2 * args.head_dim});
      }
    }
  }
  return groups;
}

// Two tokens: the softmax of their b is the logistic function of the difference.
void pool(const float* first, const float* second, int dim, float* out) {
  for (int i = 0; i < dim; ++i) {
    const float w = 1.0f / (1.0f + std::exp(second[dim + i] - first[dim + i]));
    out[i] = w * first[i] + (1.0f - w) * second[i];
  }
}

}  // namespace

// Products in fp32 in every mode: what is made here is rounded to four bits and stays for the whole request.
void compressor(Context& any, const CompressorArgs& args) {
  CpuContext& context = cpu_context(any);
  check(args);
  const Kernels& kernel = kernels(context);
  const bool round = rounds(context);
  const int dim = args.head_dim, rows = args.rows->rows;
  if (rows == 0) return;

  Scratch scratch(context);
  const Input x = prepare(context, scratch, args.x.f32(), args.x.cols, rows, args.wkv.k, Layout::split,
                          input_rounding(context, args.wkv));
  float* a = args.ratio == 2 ? args.ab.f32() : scratch.get<float>(int64_t{rows} * dim);
  const int64_t stride = args.ratio == 2 ? 2 * dim : dim;
  if (args.ratio == 2)
    multiply(context, {{.weight = &args.wkv, .x = x, .rows = rows, .y = a, .y_stride = stride},
                       {.weight = &args.wgate, .x = x, .rows = rows, .y = a + dim, .y_stride = stride}});
  else
    multiply(context, {{.weight = &args.wkv, .x = x, .rows = rows, .y = a, .y_stride = stride}});

  const std::vector<Group> groups = groups_of(args);
  const auto count = static_cast<int>(groups.size());
  if (count == 0) return;
  float* latent = scratch.get<float>(int64_t{count} * dim);
  parallel_ranges(context, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Group& group = groups[static_cast<size_t>(i)];
      float* c = latent + i * dim;
      if (args.ratio == 2)
        pool(group.first, args.ab.f32(group.row), dim, c);
      else
        std::copy_n(a + int64_t{group.row} * dim, dim, c);
      for (int k = 0; k < dim; ++k) c[k] = round_activation(context.numerics(), c[k]);
      kernel.rms_norm(c, args.norm, dim, args.norm_eps, round, c);
      if (args.latent) std::copy_n(c, dim, args.latent.f32(group.row));
    }
  });

  float* keys = scratch.get<float>(int64_t{count} * args.index_dim);
  const Input c = prepare(context, scratch, latent, dim, count, dim, Layout::split, input_rounding(context, args.wk));
  multiply(context,
           {{.weight = &args.wk, .x = c, .rows = count, .y = keys, .y_stride = args.index_dim, .round = true}});
  parallel_ranges(context, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Group& group = groups[static_cast<size_t>(i)];
      const int32_t* pages =
          args.segments->page_table + int64_t{args.rows->segment[group.row]} * args.segments->page_stride;
      float turn[512];
      cos_sin(args.rope, group.number * args.ratio, turn);

      float* key = keys + i * args.index_dim;
      kernel.rms_norm(key, args.k_norm, args.index_dim, args.norm_eps, round, key);
      kernel.rotate(key + args.index_dim - args.rope.dim, turn, args.rope.dim, false, round);
      pack_row(RowFormat::fp4_ue8m0_32, key, args.index_dim,
               args.keys.rows + PagedRows::physical(pages, args.keys.page_rows, group.number) * args.keys.row_bytes);

      float* entry = latent + i * dim;
      kernel.rotate(entry + dim - args.rope.dim, turn, args.rope.dim, false, round);
      pack_row(RowFormat::fp4_e4m3_16, entry, dim,
               args.entries.rows +
                   PagedRows::physical(pages, args.entries.page_rows, group.number) * args.entries.row_bytes);
    }
  });
}

}  // namespace hadal::cpu
