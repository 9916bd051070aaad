#include "ops/attention_output/cases.h"

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class Test final : public OperatorCase {
 public:
  Test(const AttentionOutputCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const int width = c_.groups * c_.k, inner = c_.groups * c_.o_lora;
    AttentionOutputArgs args;
    args.rows = c_.rows;
    args.groups = c_.groups;
    args.o = backend.activations(random.normals(int64_t{c_.rows} * width, 1, 4), c_.rows, width);
    args.wo_a = backend.weight(random_weight(random, WeightFormat::fp8_block32, inner, c_.k));
    args.wo_b = backend.weight(random_weight(random, WeightFormat::fp8_block32, c_.d, inner));
    args.y = backend.output_activations(c_.rows, c_.d);
    return {[&backend, args] { backend.operators().attention_output(backend.context(), args); },
            [&backend, args](Outputs& out) { out["y"] = backend.download(args.y); }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    const int inner = c_.groups * c_.o_lora;
    compare_values(report, "y", expected.at("y"), actual.at("y"),
                   products(numerics, c_.k) + rounded(numerics) + requantised(numerics, inner) +
                       products(numerics, inner) + stored(numerics));
  }

  Work work() const override {
    const double inner = double(c_.groups) * c_.o_lora;
    return {2.0 * c_.rows * inner * (c_.k + c_.d), weight_bytes(WeightFormat::fp8_block32, inner, c_.k) +
                                                       weight_bytes(WeightFormat::fp8_block32, c_.d, inner) +
                                                       2.0 * c_.rows * (c_.groups * c_.k + c_.d)};
  }

 private:
  AttentionOutputCase c_;
};

}  // namespace

Cases attention_output_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kAttentionOutputCases) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
