#include "ops/router/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"
#include "ops/testing/selection.h"

namespace hadal::testing {
namespace {

class Test final : public OperatorCase {
 public:
  Test(const RouterCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const Inputs in = inputs(random);
    std::vector<float> x = random.normals(int64_t{c_.rows} * c_.d, 1, 4);
    RouterArgs args;
    args.rows = c_.rows;
    args.topk = c_.topk;
    args.gate_temp = c_.temperature;
    args.x = backend.activations(x, c_.rows, c_.d);
    args.gate = backend.weight(bf16_weight(in.gate, c_.experts, c_.d));
    args.bias = backend.array(in.bias);
    if (c_.image) {
      args.bias_vl = backend.array(in.bias_vl);
      args.image = backend.array(in.image);
    }
    args.ids = backend.output(c_.rows, c_.topk, DType::i32);
    args.weights = backend.output(c_.rows, c_.topk, DType::f32);
    args.scores = backend.output(c_.rows, c_.experts, DType::f32);
    return {[&backend, args] { backend.operators().router(backend.context(), args); },
            [&backend, args](Outputs& out) {
              out["ids"] = backend.download(args.ids);
              out["weights"] = backend.download(args.weights);
              out["scores"] = backend.download(args.scores);
            }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    Random random = this->random();
    const Inputs in = inputs(random);
    const Output &scores = expected.at("scores"), &ids = actual.at("ids"), &weights = actual.at("weights");
    // The slope of sqrt(softplus) is at most 0.4, where the score itself is 0.8; far up it is 1 / (2 s).
    const Tolerance score = sum(c_.d) * (c_.gain / c_.temperature) + stored_as(kUnitF32) * 2;
    compare_values(report, "scores", scores, actual.at("scores"), score);

    for (int r = 0; r < c_.rows; ++r) {
      const std::vector<float>& bias = in.image[r] != 0 ? in.bias_vl : in.bias;
      const double scale = scale_of(scores, r);
      std::vector<double> key, allowed;
      for (int e = 0; e < c_.experts; ++e) {
        key.push_back(static_cast<double>(scores.f(r)[e]) + bias[e]);
        allowed.push_back(score.of_value * std::fabs(scores.f(r)[e]) + score.of_scale * scale +
                          kUnitF32 * std::fabs(key.back()));
      }
      const std::vector<int32_t> chosen(ids.i(r), ids.i(r) + c_.topk);
      check_selection(report, fmt::format("ids[{}]", r), key, allowed, c_.topk, chosen, [&](int32_t e) {
        return c_.ties ? e / 2 : e;  // experts of a pair are equal
      });
      if (std::any_of(chosen.begin(), chosen.end(), [&](int32_t e) { return e < 0 || e >= c_.experts; })) continue;

      // Weights of the experts that were chosen. Scores are positive: the sum's relative error is no larger than theirs.
      double total = 1e-20;
      for (const int32_t e : chosen) total += scores.f(r)[e];
      for (int i = 0; i < c_.topk; ++i) {
        const double s = scores.f(r)[chosen[i]], want = s / total * RouterArgs{}.route_scale;
        const double error = std::fabs(weights.f(r)[i] - want);
        const double relative = (allowed[chosen[i]] / s + c_.topk * 4 * kUnitF32) * 2;
        report.add(error / (want * relative), [&] {
          return fmt::format("weights[{}, {}] = {:.9g}, expected {:.9g}", r, i, weights.f(r)[i], want);
        });
      }
    }
  }

  Work work() const override {
    return {2.0 * c_.rows * c_.experts * c_.d, 2.0 * c_.experts * c_.d + 2.0 * c_.rows * c_.d};
  }

 private:
  struct Inputs {
    std::vector<float> gate, bias, bias_vl;
    std::vector<uint8_t> image;
  };

  // The first numbers of the case's stream.
  Inputs inputs(Random& random) const {
    Inputs in;
    in.gate = random.normals(int64_t{c_.experts} * c_.d, c_.gain / std::sqrt(c_.d));
    in.bias = random.normals(c_.experts, 0.3);
    in.bias_vl = random.normals(c_.experts, 0.3);
    for (int r = 0; r < c_.rows; ++r) in.image.push_back(c_.image && r % 3 == 1);
    for (int e = 1; c_.ties && e < c_.experts; e += 2) {
      std::copy_n(in.gate.begin() + int64_t{e - 1} * c_.d, c_.d, in.gate.begin() + int64_t{e} * c_.d);
      in.bias[e] = in.bias[e - 1];
      in.bias_vl[e] = in.bias_vl[e - 1];
    }
    return in;
  }

  RouterCase c_;
};

}  // namespace

Cases router_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kRouterCases) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
