#include "ops/indexer/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "base/dtype.h"
#include "ops/indexer/reference.h"
#include "ops/testing/backend.h"
#include "ops/testing/compare.h"
#include "ops/testing/selection.h"

namespace hadal::testing {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr RowFormat kKey = RowFormat::fp4_ue8m0_32;

// A rounding of Q2 that flips moves every score of its row by far more than fp32 noise. So the check has two stages: the
// backend's own queries must be legal roundings, and its scores and selections are then held against the scores of
// exactly these queries.
class Test final : public OperatorCase {
 public:
  Test(const IndexerCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const Inputs in = inputs(random);
    const HostStep& host = in.step;
    const auto bound = std::make_shared<Bound>(backend, host);
    IndexerArgs& args = bound->args;
    const int rows = host.kept.rows(), all = host.all.rows(), width = c_.heads * c_.index_dim;

    args.rows = &bound->step.kept;
    args.segments = &bound->step.segments;
    args.qr = backend.activations(random.normals(int64_t{rows} * c_.q_lora, 1, 4), rows, c_.q_lora);
    args.x = backend.activations(random.normals(int64_t{all} * c_.d), all, c_.d);
    if (rows != all) args.x_source = backend.array(host.kept.step_row);
    args.ratio = c_.ratio;
    args.heads = c_.heads;
    args.index_dim = c_.index_dim;
    args.topk = c_.topk;
    args.rope = {backend.array(inverse_frequencies(c_.rope_dim, 160000)), c_.rope_dim};
    args.wq_b = backend.weight(random_weight(random, WeightFormat::fp8_block32, width, c_.q_lora));
    args.weights_proj = backend.weight(random_weight(random, WeightFormat::bf16, c_.heads, c_.d));
    args.keys = {backend.pool(in.keys), static_cast<int>(key_bytes()), c_.page_tokens / c_.ratio};
    args.use = c_.use;
    args.candidate_topk_blocks = c_.blocks;
    args.candidate_block_size = c_.block_size;
    if (c_.use == CandidateUse::publish)
      args.candidates = {backend.output(all, c_.blocks, DType::i32), backend.output(all, 1, DType::i32)};
    if (c_.use == CandidateUse::filter)
      args.candidates = {backend.i32(in.blocks, all, c_.blocks), backend.i32(in.block_count, all, 1)};
    args.selection = {backend.output(all, c_.topk, DType::i32), backend.output(all, 1, DType::i32)};
    args.query_trace = backend.output(rows, width, DType::f32);
    args.score_trace = backend.output(rows, columns(host), DType::f32);

    return {
        [&backend, bound] { backend.operators().indexer(backend.context(), bound->args); },
        [&backend, bound, this](Outputs& out) {
          const IndexerArgs& a = bound->args;
          out["selected"] = backend.download(a.selection.rows);
          out["count"] = backend.download(a.selection.count);
          out["queries"] = backend.download(a.query_trace);
          out["scores"] = backend.download(a.score_trace);
          if (c_.use == CandidateUse::publish) {
            out["blocks"] = backend.download(a.candidates.blocks);
            out["block count"] = backend.download(a.candidates.count);
          }
          if (backend.is_reference()) {
            out["unrounded"] = {
                a.rows->rows, a.heads * a.index_dim, reference::index_queries(backend.numerics(), a), {}, {}};
            out["head weights"] = {a.rows->rows, a.heads, reference::index_head_weights(backend.numerics(), a), {}, {}};
          }
        }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    Random random = this->random();
    const Inputs in = inputs(random);
    const Tolerance query = products(numerics, c_.q_lora) + rounded(numerics) * 2 + stored(numerics);
    for (int r = 0; r < in.step.kept.rows(); ++r) {
      const float* queries = actual.at("queries").f(r);
      const float* unrounded = expected.at("unrounded").f(r);
      for (int i = 0; i < c_.heads * c_.index_dim; i += 32)
        compare_q2_block(report, fmt::format("query {}, channels from {}", r, i), unrounded + i, queries + i, query);
      if (report.failed()) return;  // scores of such queries mean nothing
      check_row(numerics, in, r, queries, expected.at("head weights").f(r), actual, report);
    }
  }

  Work work() const override {
    double rows = 0, keys = 0;
    for (const StepSegment& s : c_.segments) {
      const int out = s.kept < 0 ? s.count : s.kept;
      rows += out;
      keys += out * double(s.first + s.count) / c_.ratio;
    }
    const double width = double(c_.heads) * c_.index_dim;
    return {2 * rows * (width * c_.q_lora + double(c_.heads) * c_.d) + 2 * keys * width,
            weight_bytes(WeightFormat::fp8_block32, width, c_.q_lora) + 2.0 * c_.heads * c_.d +
                keys * static_cast<double>(key_bytes())};
  }

 private:
  struct Bound {
    Bound(Backend& backend, const HostStep& host) : step(backend, host) {}
    DeviceStep step;
    IndexerArgs args;
  };
  struct Inputs {
    HostStep step;
    std::vector<uint8_t> keys;
    std::vector<int32_t> blocks, block_count;  // by step row
  };
  struct Scores {
    std::vector<double> score, tolerance;
  };

  int64_t key_bytes() const { return static_cast<int64_t>(row_bytes(kKey, c_.index_dim)); }
  int64_t columns(const HostStep& host) const { return int64_t{host.page_stride} * c_.page_tokens / c_.ratio; }

  // The first numbers of the case's stream.
  Inputs inputs(Random& random) const {
    Inputs in{make_step(random, c_.segments, c_.page_tokens), {}, {}, {}};
    const int64_t rows = int64_t{in.step.pages} * c_.page_tokens / c_.ratio;
    in.keys = random_packed_rows(random, kKey, c_.index_dim, rows);
    if (c_.equal_keys) {  // three different keys in all
      for (int64_t i = 3; i < rows; ++i)
        std::copy_n(in.keys.begin() + random.integer(0, 2) * key_bytes(), key_bytes(),
                    in.keys.begin() + i * key_bytes());
    }
    if (c_.use == CandidateUse::filter) {
      for (const int32_t position : in.step.all.position) {
        const int visible = (position + 1) / c_.ratio, blocks = (visible + c_.block_size - 1) / c_.block_size;
        std::vector<int32_t> chosen = random.permutation(blocks);
        const bool all = blocks <= c_.blocks;  // then the count says so
        chosen.resize(all ? 0 : random.integer(1, c_.blocks));
        std::sort(chosen.begin(), chosen.end());
        in.block_count.push_back(all ? -1 : static_cast<int32_t>(chosen.size()));
        chosen.resize(c_.blocks, -1);
        in.blocks.insert(in.blocks.end(), chosen.begin(), chosen.end());
      }
    }
    return in;
  }

  const uint8_t* key_of(const Inputs& in, int segment, int64_t group) const {
    return in.keys.data() + in.step.physical(segment, c_.ratio, group) * key_bytes();
  }

  bool is_candidate(const Inputs& in, int32_t step_row, int64_t group) const {
    if (c_.use != CandidateUse::filter || in.block_count[step_row] < 0) return true;
    const auto begin = in.blocks.begin() + int64_t{step_row} * c_.blocks;
    return std::find(begin, begin + in.block_count[step_row], group / c_.block_size) !=
           begin + in.block_count[step_row];
  }

  // Scores of the visible groups for these queries, each with what a backend's may be off by.
  Scores scores_of(Numerics numerics, const Inputs& in, int r, const float* queries, const float* weights) const {
    IndexerArgs shape;
    shape.heads = c_.heads;
    shape.index_dim = c_.index_dim;
    const HostRows& rows = in.step.kept;
    const int64_t visible = reference::visible_groups(rows.position[r], c_.ratio);
    Scores out{std::vector<double>(visible, kNone), std::vector<double>(visible)};
    std::vector<float> key(c_.index_dim);
    // Head weights are rounded twice, `official` rounds the product, its multiple and the sum as well. One of them that lies
    // at a midpoint may come out a step or two of bf16 away, and then shows as up to half of this; without such a one, in eleven of
    // twelve seeds, scores agree to 1e-5 of it.
    const double unit = activation_unit(numerics);
    const double per_head = 2 * 2 * unit + (numerics == Numerics::official ? 3 * 2 * unit : 0) + sum(c_.heads).of_scale;
    for (int64_t g = 0; g < visible; ++g) {
      if (!is_candidate(in, rows.step_row[r], g)) continue;
      unpack_row(kKey, key_of(in, rows.segment[r], g), c_.index_dim, key.data());
      out.score[g] = reference::index_score(numerics, shape, queries, weights, key.data());
      for (int head = 0; head < c_.heads; ++head) {
        double dot = 0, squares = 0;
        for (int i = 0; i < c_.index_dim; ++i) {
          const double product = static_cast<double>(queries[head * c_.index_dim + i]) * key[i];
          dot += product;
          squares += product * product;
        }
        // A head weight is off by its own rounding, and by the error of a sum of d terms of size 1.
        const double weight_error = sum(c_.d).of_scale / std::sqrt(double(c_.index_dim) * c_.heads);
        out.tolerance[g] += std::fabs(weights[head]) *
                                (std::max(dot, 0.0) * per_head + std::sqrt(squares) * sum(c_.index_dim).of_scale) +
                            std::max(dot, 0.0) * weight_error;
      }
      out.tolerance[g] += 2 * kUnitF32 * std::fabs(out.score[g]);
    }
    return out;
  }

  void check_row(Numerics numerics, const Inputs& in, int r, const float* queries, const float* weights,
                 const Outputs& actual, Report& report) const {
    const HostRows& rows = in.step.kept;
    const int32_t step_row = rows.step_row[r], segment = rows.segment[r];
    const Scores want = scores_of(numerics, in, r, queries, weights);

    const Output& scores = actual.at("scores");
    for (int64_t g = 0; g < scores.cols; ++g) {
      const double have = scores.f(r)[g];
      const bool eligible = g < static_cast<int64_t>(want.score.size()) && want.score[g] != kNone;
      if (!eligible && have != kNone) report.fail(fmt::format("scores[{}, {}] = {:.9g}, expected -inf", r, g, have));
      if (eligible && have != want.score[g])
        report.add(std::fabs(have - want.score[g]) / want.tolerance[g],
                   [&] { return fmt::format("scores[{}, {}] = {:.9g}, expected {:.9g}", r, g, have, want.score[g]); });
    }

    // Physical rows back to groups.
    const int32_t count = actual.at("count").i(step_row)[0];
    if (count < 0 || count > c_.topk) return report.fail(fmt::format("count of row {} is {}", r, count));
    std::vector<int32_t> chosen;
    for (int i = 0; i < c_.topk; ++i) {
      const int32_t physical = actual.at("selected").i(step_row)[i];
      if (i >= count) {
        if (physical != -1) report.fail(fmt::format("row {}: {} behind the selection, expected -1", r, physical));
        continue;
      }
      int32_t group = 0;
      while (group < static_cast<int32_t>(want.score.size()) && in.step.physical(segment, c_.ratio, group) != physical)
        ++group;
      chosen.push_back(group);
    }
    check_selection(report, fmt::format("selection of row {}", r), want.score, want.tolerance, c_.topk, chosen,
                    [&](int32_t g) { return kind_of(in, segment, g); });
    if (c_.use == CandidateUse::publish) check_blocks(want, r, step_row, actual, report);
  }

  // Groups with equal keys have equal scores: the first of them names the kind.
  int64_t kind_of(const Inputs& in, int segment, int32_t group) const {
    if (!c_.equal_keys) return group;
    const uint8_t* key = key_of(in, segment, group);
    for (int32_t g = 0; g < group; ++g)
      if (std::equal(key, key + key_bytes(), key_of(in, segment, g))) return g;
    return group;
  }

  void check_blocks(const Scores& want, int r, int32_t step_row, const Outputs& actual, Report& report) const {
    const int64_t blocks = (static_cast<int64_t>(want.score.size()) + c_.block_size - 1) / c_.block_size;
    const int32_t count = actual.at("block count").i(step_row)[0];
    if (count == -1 && blocks <= c_.blocks) return;  // every visible block
    if (count < 0 || count > c_.blocks) return report.fail(fmt::format("row {}: {} candidate blocks", r, count));
    std::vector<double> score(blocks, kNone), tolerance(blocks);
    for (size_t g = 0; g < want.score.size(); ++g) {
      double& of_block = score[g / c_.block_size];
      of_block = std::max(of_block, want.score[g]);
      tolerance[g / c_.block_size] = std::max(tolerance[g / c_.block_size], want.tolerance[g]);
    }
    if (blocks > 0) score.back() = std::numeric_limits<double>::max();  // the newest block always wins
    const int32_t* chosen = actual.at("blocks").i(step_row);
    check_selection(report, fmt::format("candidate blocks of row {}", r), score, tolerance, c_.blocks,
                    {chosen, chosen + count}, [](int32_t b) { return b; });
    if (std::any_of(chosen + count, chosen + c_.blocks, [](int32_t b) { return b != -1; }))
      report.fail(fmt::format("row {}: candidate blocks behind the count are not -1", r));
  }

  IndexerCase c_;
};

}  // namespace

Cases indexer_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : indexer_list()) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
