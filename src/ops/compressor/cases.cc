#include "ops/compressor/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/compressor/reference.h"
#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class Test final : public OperatorCase {
 public:
  Test(const CompressorCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const HostStep host = make_step(random, c_.segments, c_.page_tokens);
    const auto step = std::make_shared<DeviceStep>(backend, host);
    const int rows = host.all.rows(), page_rows = c_.page_tokens / c_.ratio;

    const auto args = std::make_shared<CompressorArgs>();
    args->x = backend.activations(random.normals(int64_t{rows} * c_.d, c_.size, 8), rows, c_.d);
    args->rows = &step->all;
    args->segments = &step->segments;
    args->ratio = c_.ratio;
    args->head_dim = c_.head_dim;
    args->index_dim = c_.index_dim;
    args->rope = {backend.array(inverse_frequencies(c_.rope_dim, 160000)), c_.rope_dim};
    args->wkv = backend.weight(random_weight(random, WeightFormat::bf16, c_.head_dim, c_.d));
    if (c_.ratio == 2) {
      args->wgate = backend.weight(random_weight(random, WeightFormat::bf16, c_.head_dim, c_.d));
      args->pending = backend.array(random.normals(int64_t{host.slots} * 2 * c_.head_dim));
      args->ab = backend.output(rows, 2 * c_.head_dim, DType::f32);
    }
    args->norm = backend.array(random_norm(random, c_.head_dim));
    args->wk = backend.weight(random_weight(random, WeightFormat::bf16, c_.index_dim, c_.head_dim));
    args->k_norm = backend.array(random_norm(random, c_.index_dim));
    const Tensor entries = pool(backend, random, kEntry, c_.head_dim, host.pages * page_rows);
    const Tensor keys = pool(backend, random, kKey, c_.index_dim, host.pages * page_rows);
    args->entries = {entries.u8(), static_cast<int>(entries.cols), page_rows};
    args->keys = {keys.u8(), static_cast<int>(keys.cols), page_rows};
    // The reference needs its latents: packed rows are checked against what is in front of their rounding.
    if (c_.trace || backend.is_reference()) args->latent = backend.output(rows, c_.head_dim, DType::f32);

    return {[&backend, args, step] { backend.operators().compressor(backend.context(), *args); },
            [&backend, args, step, entries, keys](Outputs& out) {
              out["entries"] = backend.download(entries);
              out["keys"] = backend.download(keys);
              if (args->ab) out["ab"] = backend.download(args->ab);
              if (args->latent) out["latent"] = backend.download(args->latent);
              if (backend.is_reference()) add_unrounded(backend, *args, out);
            }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    Random random = this->random();
    const HostStep host = make_step(random, c_.segments, c_.page_tokens);  // the first thing that prepare() drew
    const Tolerance projected = sum(c_.d);
    if (c_.ratio == 2)
      compare_values(report, "ab", expected.at("ab"), actual.at("ab"), projected + stored_as(kUnitF32));

    // Pooling: an error of b moves the weights, by as much at most, and both latents are of size 1. Norm weights reach 2.
    const Tolerance latent = (projected * 3 + rounded(numerics) + sum(c_.head_dim)) * 2;
    const Tolerance entry = latent + rounded(numerics) + stored(numerics);
    const Tolerance key =
        (latent + rounded(numerics) * 2 + sum(c_.head_dim + c_.index_dim)) * 2 + rounded(numerics) + stored(numerics);

    std::vector<bool> written(expected.at("entries").rows);
    for (int r = 0; r < host.all.rows(); ++r) {
      const int32_t position = host.all.position[r];
      if ((position + 1) % c_.ratio != 0) continue;
      const int64_t at = host.physical(host.all.segment[r], c_.ratio, position / c_.ratio);
      written[at] = true;
      if (c_.trace)
        compare_row(report, "latent", expected.at("latent"), actual.at("latent"), r, latent + stored(numerics));
      compare_packed_row(report, fmt::format("entry of row {}", r), kEntry, c_.head_dim,
                         expected.at("unrounded entries").f(r), actual.at("entries").u(at), entry);
      compare_packed_row(report, fmt::format("key of row {}", r), kKey, c_.index_dim,
                         expected.at("unrounded keys").f(r), actual.at("keys").u(at), key);
    }
    // All other rows of the pools stay as they were, which the reference's do.
    for (const char* name : {"entries", "keys"}) {
      const Output &want = expected.at(name), &have = actual.at(name);
      for (int64_t i = 0; i < want.rows; ++i)
        if (!written[i] && !std::equal(want.u(i), want.u(i) + want.cols, have.u(i)))
          report.fail(fmt::format("{}: row {} of the pool was overwritten", name, i));
    }
  }

  Work work() const override {
    double rows = 0;
    for (const StepSegment& s : c_.segments) rows += s.count;
    const double matrices = c_.ratio, groups = rows / c_.ratio;
    return {2 * rows * matrices * c_.d * c_.head_dim + 2 * groups * c_.head_dim * c_.index_dim,
            2 * matrices * c_.d * c_.head_dim + 2.0 * c_.head_dim * c_.index_dim + 2 * rows * c_.d};
  }

 private:
  static constexpr RowFormat kEntry = RowFormat::fp4_e4m3_16, kKey = RowFormat::fp4_ue8m0_32;

  static Tensor pool(Backend& backend, Random& random, RowFormat format, int dim, int64_t rows) {
    return {backend.pool(random_packed_rows(random, format, dim, rows)), DType::u8, rows,
            static_cast<int64_t>(row_bytes(format, dim))};
  }

  // By row of the step; rows that complete no group are zero.
  static void add_unrounded(Backend& backend, const CompressorArgs& args, Outputs& out) {
    Output& entries = out["unrounded entries"] = {args.rows->rows, args.head_dim, {}, {}, {}};
    Output& keys = out["unrounded keys"] = {args.rows->rows, args.index_dim, {}, {}, {}};
    for (int r = 0; r < args.rows->rows; ++r) {
      const int32_t position = args.rows->position[r];
      std::vector<float> entry(args.head_dim), key(args.index_dim);
      if ((position + 1) % args.ratio == 0) {
        entry = reference::compressed_entry(backend.numerics(), args, args.latent.f32(r), position / args.ratio);
        key = reference::index_key(backend.numerics(), args, args.latent.f32(r), position / args.ratio);
      }
      entries.f32.insert(entries.f32.end(), entry.begin(), entry.end());
      keys.f32.insert(keys.f32.end(), key.begin(), key.end());
    }
  }

  CompressorCase c_;
};

}  // namespace

Cases compressor_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : compressor_list()) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
