#include "ops/experts/cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class Store final : public ExpertStore {
 public:
  Store(std::vector<FeedForward> experts, bool partial) : experts_(std::move(experts)), partial_(partial) {}
  int count() const override { return static_cast<int>(experts_.size()); }
  static bool is_local(int expert, bool partial) { return !partial || expert % 2 == 1; }
  bool is_local(int expert) const override { return is_local(expert, partial_); }
  const FeedForward& expert(int expert) const override { return experts_[expert]; }
  void hint(const int32_t*, int) const override {}

 private:
  std::vector<FeedForward> experts_;
  bool partial_;
};

struct HostFeedForward {
  HostWeight w1, w3, w2;
};

class Test final : public OperatorCase {
 public:
  // `begun`: by Operators::begin_experts, where there is one.
  Test(const ExpertsCase& c, bool begun, uint64_t seed) : OperatorCase(c.name, seed), c_(c), begun_(begun) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const auto feed_forward = [&](WeightFormat format) {
      HostFeedForward w{random_weight(random, format, c_.inner, c_.d, c_.gain),
                        random_weight(random, format, c_.inner, c_.d, c_.gain),
                        random_weight(random, format, c_.d, c_.inner)};
      if (c_.highest > 0 && format == WeightFormat::mxfp4)
        for (size_t i = 0; i < w.w2.scale.size(); ++i) {
          const auto block = static_cast<int>(i) % (c_.inner / 32), row = static_cast<int>(i) / (c_.inner / 32);
          w.w2.scale[i] = static_cast<uint8_t>(std::clamp(scale_of_row(row) + block % 3 - 1, c_.lowest, c_.highest));
        }
      else if (c_.highest > 0)
        std::fill(w.w2.data.begin(), w.w2.data.end(), uint8_t{0});
      return w;
    };
    std::vector<HostFeedForward> experts;
    for (int e = 0; e < c_.experts; ++e) {
      experts.push_back(feed_forward(WeightFormat::mxfp4));
      // Whoever reads an expert that is not local gets NaN.
      if (!Store::is_local(e, c_.partial))
        for (HostWeight* w : {&experts.back().w1, &experts.back().w3, &experts.back().w2})
          std::fill(w->scale.begin(), w->scale.end(), uint8_t{255});
    }
    const auto store = std::make_shared<Store>(place(backend, experts), c_.partial);

    std::vector<int32_t> ids;
    for (int r = 0; r < c_.rows; ++r) {
      std::vector<int32_t> row = random.permutation(c_.experts);
      for (int i = 0; i < c_.topk; ++i) {
        if (c_.routing == Routing::one_set) row[i] = c_.experts - c_.topk + i;
        if (c_.routing == Routing::rotating) row[i] = (r * c_.topk + i) % c_.experts;
      }
      row.resize(c_.topk);
      std::sort(row.begin(), row.end());
      ids.insert(ids.end(), row.begin(), row.end());
    }

    ExpertsArgs args;
    args.rows = c_.rows;
    args.topk = c_.topk;
    args.limit = c_.limit;
    args.x = backend.activations(random.normals(int64_t{c_.rows} * c_.d, c_.size, 4), c_.rows, c_.d);
    args.ids = backend.i32(ids, c_.rows, c_.topk);
    args.weights = backend.f32(random.uniforms(int64_t{c_.rows} * c_.topk, 0.05, 1), c_.rows, c_.topk);
    args.experts = store.get();
    const HostFeedForward shared = feed_forward(WeightFormat::fp8_block32);
    args.shared = {backend.weight(shared.w1), backend.weight(shared.w3), backend.weight(shared.w2)};
    args.y = backend.output_activations(c_.rows, c_.d);
    return {[&backend, args, store, begun = begun_] {
              ExpertsArgs now = args;
              if (begun && backend.operators().begin_experts != nullptr) {
                backend.operators().begin_experts(backend.context(), now);
                // What comes between takes memory of its own.
                const std::vector<float> nonsense(static_cast<size_t>(args.x.rows * args.x.cols) * 4,
                                                  std::numeric_limits<float>::quiet_NaN());
                backend.f32(nonsense, args.x.rows, args.x.cols * 4);
              }
              backend.operators().experts(backend.context(), now);
            },
            [&backend, args](Outputs& out) { out["y"] = backend.download(args.y); }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    // Errors of gate and up, in units of their size, reach the product up to 1.1 times each, and the product of two
    // normal values (one through silu) is about 0.6 of their size: 2 * 1.1 / 0.6.
    const Tolerance product = (sum(c_.d) + rounded(numerics)) * 3.7 + rounded(numerics);
    compare_values(report, "y", in_units(expected.at("y")), in_units(actual.at("y")),
                   product + requantised(numerics, c_.inner) + sum(c_.inner) + rounded(numerics) + sum(c_.topk + 1) +
                       stored(numerics));
  }

  Work work() const override {
    const double one = 3.0 * c_.d * c_.inner, used = std::min(c_.experts, c_.rows * c_.topk);
    return {2 * one * c_.rows * (c_.topk + 1), used * weight_bytes(WeightFormat::mxfp4, one, 1) +
                                                   weight_bytes(WeightFormat::fp8_block32, one, 1) +
                                                   4.0 * c_.rows * c_.d};
  }

 private:
  int scale_of_row(int row) const { return c_.lowest + row % (c_.highest - c_.lowest + 1); }
  // Columns in units of the scale of the row of w2 that gives them.
  Output in_units(Output y) const {
    if (c_.highest == 0) return y;
    for (size_t i = 0; i < y.f32.size(); ++i)
      y.f32[i] = std::ldexp(y.f32[i], 127 - scale_of_row(static_cast<int>(i) % c_.d));
    return y;
  }
  // As a model loads them, where the backend has a layout of its own for the experts of a layer.
  static std::vector<FeedForward> place(Backend& backend, const std::vector<HostFeedForward>& experts) {
    const auto host = [](const HostWeight& w) { return Weight{w.format, w.n, w.k, w.data.data(), w.scale.data()}; };
    const auto load = backend.operators().load_experts;
    std::vector<FeedForward> list;
    for (const HostFeedForward& e : experts)
      list.push_back(load != nullptr ? FeedForward{host(e.w1), host(e.w3), host(e.w2)}
                                     : FeedForward{backend.weight(e.w1), backend.weight(e.w3), backend.weight(e.w2)});
    if (load != nullptr) load(backend.context(), list);
    return list;
  }

  ExpertsCase c_;
  bool begun_;
};

}  // namespace

Cases experts_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kExpertsCases) cases.push_back(std::make_unique<Test>(c, false, seed));
  for (const auto& c : kBegunExpertsCases) cases.push_back(std::make_unique<Test>(c, true, seed));
  return cases;
}

}  // namespace hadal::testing
