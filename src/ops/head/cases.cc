#include "ops/head/cases.h"

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class Test final : public OperatorCase {
 public:
  Test(const HeadCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    HeadArgs args;
    args.rows = c_.rows;
    args.x = backend.activations(random.normals(int64_t{c_.rows} * c_.d, 1, 8), c_.rows, c_.d);
    args.head = backend.weight(random_weight(random, WeightFormat::bf16, c_.vocab, c_.d));
    args.logits = backend.output(c_.rows, c_.vocab, DType::f32);
    return {[&backend, args] { backend.operators().head(backend.context(), args); },
            [&backend, args](Outputs& out) { out["logits"] = backend.download(args.logits); }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    compare_values(report, "logits", expected.at("logits"), actual.at("logits"), sum(c_.d) + stored_as(kUnitF32));
  }

  Work work() const override {
    return {2.0 * c_.rows * c_.vocab * c_.d,
            weight_bytes(WeightFormat::bf16, c_.vocab, c_.d) + c_.rows * (2.0 * c_.d + 4.0 * c_.vocab)};
  }

 private:
  HeadCase c_;
};

}  // namespace

Cases head_cases(uint64_t seed) {
  Cases cases;
  for (const HeadCase& c : kHeadCases) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
