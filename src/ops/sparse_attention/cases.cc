#include "ops/sparse_attention/cases.h"

#include <algorithm>
#include <memory>

#include "ops/reference_math.h"
#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class Test final : public OperatorCase {
 public:
  Test(const SparseAttentionCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const HostStep host = make_step(random, c_.segments);
    const auto bound = std::make_shared<Bound>(backend, host, suffix(host));
    SparseAttentionArgs& args = bound->args;
    const int in_rows = bound->in_rows.rows, out_rows = host.kept.rows(), width = c_.heads * c_.head_dim;

    args.in = &bound->in_rows;
    args.out = &bound->step.kept;
    args.segments = &bound->step.segments;
    args.heads = c_.heads;
    args.head_dim = c_.head_dim;
    args.scale = static_cast<float>(1 / std::sqrt(c_.head_dim));
    args.rope = {backend.array(inverse_frequencies(c_.rope_dim)), c_.rope_dim};
    std::vector<float> sink = random.normals(c_.heads);
    for (float& s : sink) s += static_cast<float>(c_.sink);
    args.sink = backend.array(sink);
    std::vector<float> q = random.normals(int64_t{out_rows} * width, c_.q_gain);
    for (float& v : q) v = round_bf16(v);
    // Before the rotation, with its angles, as a backend may want them; and as they are after it.
    const std::vector<float> frequencies = inverse_frequencies(c_.rope_dim);
    if (backend.operators().query_angles != nullptr && c_.rope_dim % 8 == 0) {
      std::vector<float> angles;
      for (const int32_t position : host.kept.position)
        for (const float f : frequencies) {
          const double angle = static_cast<float>(position) * f;
          angles.push_back(static_cast<float>(std::cos(angle)));
          angles.push_back(static_cast<float>(std::sin(angle)));
        }
      bound->q = backend.activations(q, out_rows, width);
      bound->q_angles = backend.f32(angles, out_rows, c_.rope_dim);
      bound->o_of_angles = backend.output_activations(out_rows, width);
    }
    for (int r = 0; r < out_rows; ++r)
      for (int head = 0; head < c_.heads; ++head)
        reference::rotate(Numerics::bf16, {frequencies.data(), c_.rope_dim},
                          q.data() + (int64_t{r} * c_.heads + head) * c_.head_dim, c_.head_dim, host.kept.position[r]);
    args.q = backend.activations(q, out_rows, width);
    args.latent = backend.u8(random_packed_rows(random, kLatent, c_.head_dim, in_rows), in_rows, bytes(kLatent));
    args.ring = {backend.pool(ring(random, host)), static_cast<int>(bytes(kLatent)), c_.window};
    if (!c_.floor.empty()) args.floor = backend.array(c_.floor);
    args.bidirectional = c_.bidirectional;
    if (c_.ratio > 0) {
      add_entries(random, host, backend, *bound);
      args.entries = &bound->entries;
      args.selection = &bound->selection;
    }
    args.o = backend.output_activations(out_rows, width);
    // And the form in which a backend may want it for wo_a instead.
    const HostWeight wo_a{WeightFormat::fp8_block32, 128, width, std::vector<uint8_t>(int64_t{128} * width),
                          std::vector<uint8_t>(4 * ((width + 31) / 32), 127)};
    if (backend.operators().linear_input != nullptr)
      bound->o_read = backend.output_linear_input(out_rows, backend.weight(wo_a), 1);
    // What layers with the same entries share: the second call finds it.
    const Operators& operators = backend.operators();
    const size_t shared_bytes =
        operators.shared_entries_bytes != nullptr ? operators.shared_entries_bytes(backend.context(), args) : 0;
    if (shared_bytes > 0) {
      bound->shared.memory = backend.context().allocate_step(shared_bytes);
      args.shared = &bound->shared;
    }
    return {[&backend, &operators, bound, shared_bytes] {
              bound->shared.filled = false;
              operators.sparse_attention(backend.context(), bound->args);
              if (shared_bytes > 0) operators.sparse_attention(backend.context(), bound->args);
              if (bound->q_angles) {
                SparseAttentionArgs rotated = bound->args;
                rotated.q = bound->q;
                rotated.q_angles = bound->q_angles;
                rotated.o = bound->o_of_angles;
                operators.sparse_attention(backend.context(), rotated);
              }
              if (bound->o_read.type != DType::u8) return;
              SparseAttentionArgs again = bound->args;
              again.o = bound->o_read;
              operators.sparse_attention(backend.context(), again);
            },
            [&backend, bound](Outputs& out) {
              out["o"] = backend.download(bound->args.o);
              if (bound->q_angles) out["o of angles"] = backend.download(bound->o_of_angles);
              if (bound->o_read.type == DType::u8) out["rounded o"] = backend.download_rounded(bound->o_read);
            }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    // A score's absolute error is its probability's relative error; keys are of size 1.1, so scores of size q_gain * 1.1.
    // The exponent's argument runs up to the distance between scores and sink, and is rounded in units of its size.
    const Tolerance exponent = random_error(kUnitF32 * (4 * c_.q_gain + std::fabs(c_.sink)));
    const Tolerance probability = sum(c_.head_dim) * (1.1 * c_.q_gain) + rounded(numerics);
    const int keys = c_.window + c_.topk + 64;
    // Rounded once per head, and the rotated channels again, where a value also moves to its partner.
    compare_values(report, "o", reshape(expected.at("o"), c_.head_dim), reshape(actual.at("o"), c_.head_dim),
                   exponent + probability + sum(keys) + rounded(numerics) + stored(numerics));
    if (actual.has("o of angles")) compare_exactly(report, "o of angles", actual.at("o"), actual.at("o of angles"));
    if (!actual.has("rounded o")) return;
    Output rounded_o = actual.at("o");
    for (int64_t r = 0; r < rounded_o.rows; ++r)
      round_fp8_128(rounded_o.f32.data() + r * rounded_o.cols, static_cast<int>(rounded_o.cols));
    compare_exactly(report, "rounded o", rounded_o, actual.at("rounded o"));
  }

  Work work() const override {
    double rows = 0, keys = 0;
    for (const StepSegment& s : c_.segments) {
      const int out = s.kept < 0 ? s.count : s.kept;
      rows += out;
      keys += out * (std::min(c_.window, s.first + s.count) +
                     (c_.ratio > 0 ? std::min(c_.topk, (s.first + s.count) / c_.ratio) : 0));
    }
    const double width = double(c_.heads) * c_.head_dim;
    return {4 * keys * width, rows * 4 * width + keys * c_.head_dim * 0.75};
  }

 private:
  static constexpr RowFormat kLatent = RowFormat::fp8_ue8m0_32, kEntry = RowFormat::fp4_e4m3_16;

  struct Bound {
    Bound(Backend& backend, const HostStep& host, const HostRows& in)
        : step(backend, host),
          in_rows{in.rows(), backend.array(in.position), backend.array(in.segment), backend.array(in.step_row),
                  backend.array(in.seg_begin)} {}
    DeviceStep step;
    RowSet in_rows;
    PagedRows entries;
    Selection selection;
    SparseAttentionArgs args;
    Tensor o_read;
    Tensor q, q_angles, o_of_angles;
    SharedEntries shared;
  };

  int64_t bytes(RowFormat format) const { return static_cast<int64_t>(row_bytes(format, c_.head_dim)); }

  // The last in_rows rows of every segment.
  HostRows suffix(const HostStep& host) const {
    if (c_.in_rows < 0) return host.all;
    HostRows in;
    in.seg_begin.push_back(0);
    for (size_t s = 0; s < c_.segments.size(); ++s) {
      for (int r = std::max(host.all.seg_begin[s], host.all.seg_begin[s + 1] - c_.in_rows);
           r < host.all.seg_begin[s + 1]; ++r) {
        in.position.push_back(host.all.position[r]);
        in.segment.push_back(host.all.segment[r]);
        in.step_row.push_back(r);
      }
      in.seg_begin.push_back(in.rows());
    }
    return in;
  }

  // Slots that hold no committed position are NaN: whoever reads one shows it.
  std::vector<uint8_t> ring(Random& random, const HostStep& host) const {
    const std::vector<uint8_t> values =
        random_packed_rows(random, kLatent, c_.head_dim, int64_t{host.slots} * c_.window);
    std::vector<uint8_t> rows(values.size(), 0xff);
    for (size_t s = 0; s < c_.segments.size(); ++s) {
      for (int p = std::max(0, host.first[s] - c_.window); p < host.first[s]; ++p) {
        const int64_t at = (int64_t{host.slot[s]} * c_.window + p % c_.window) * bytes(kLatent);
        std::copy_n(values.begin() + at, bytes(kLatent), rows.begin() + at);
      }
    }
    return rows;
  }

  // A random choice of visible groups for every step row; the other rows of the pool are NaN.
  void add_entries(Random& random, const HostStep& host, Backend& backend, Bound& bound) const {
    const int page_rows = host.page_tokens / c_.ratio, rows = host.all.rows();
    const int64_t pool_rows = int64_t{host.pages} * page_rows;
    const std::vector<uint8_t> values = random_packed_rows(random, kEntry, c_.head_dim, pool_rows);
    std::vector<uint8_t> pool(values.size(), 0xff);
    std::vector<int32_t> selected(int64_t{rows} * c_.topk, -1), count(rows);
    for (int r = 0; r < rows; ++r) {
      const int visible = (host.all.position[r] + 1) / c_.ratio;
      std::vector<int32_t> groups = random.permutation(visible);
      // Mostly as many as there are; sometimes fewer, down to none.
      groups.resize(std::min(visible, random.integer(0, 3) == 0 ? random.integer(0, c_.topk) : c_.topk));
      std::sort(groups.begin(), groups.end());
      count[r] = static_cast<int32_t>(groups.size());
      for (size_t i = 0; i < groups.size(); ++i) {
        const int64_t at = host.physical(host.all.segment[r], c_.ratio, groups[i]);
        selected[int64_t{r} * c_.topk + static_cast<int64_t>(i)] = static_cast<int32_t>(at);
        std::copy_n(values.begin() + at * bytes(kEntry), bytes(kEntry), pool.begin() + at * bytes(kEntry));
      }
    }
    bound.entries = {backend.pool(pool), static_cast<int>(bytes(kEntry)), page_rows, host.pages};
    bound.selection = {backend.i32(selected, rows, c_.topk), backend.i32(count, rows, 1)};
  }

  SparseAttentionCase c_;
};

}  // namespace

Cases sparse_attention_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : sparse_attention_list()) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
