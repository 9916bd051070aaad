#include "ops/embedding/cases.h"

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class Test final : public OperatorCase {
 public:
  Test(const EmbeddingCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    std::vector<int32_t> tokens(c_.rows);
    for (int r = 0; r < c_.rows; ++r)  // the first and the last token too
      tokens[r] = r == 0 ? c_.vocab - 1 : r == 1 ? 0 : random.integer(0, c_.vocab - 1);
    EmbeddingArgs args;
    args.tokens = backend.array(tokens);
    args.embed = backend.weight(random_weight(random, WeightFormat::bf16, c_.vocab, c_.d));
    args.h = backend.output_activations(c_.rows, int64_t{c_.copies} * c_.d);
    args.pre = backend.output(c_.rows, c_.copies, DType::f32);
    return {[&backend, args] { backend.operators().embedding(backend.context(), args); },
            [&backend, args](Outputs& out) {
              out["h"] = backend.download(args.h);
              out["pre"] = backend.download(args.pre);
            }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    compare_exactly(report, "h", expected.at("h"), actual.at("h"));
    compare_exactly(report, "pre", expected.at("pre"), actual.at("pre"));
  }

  Work work() const override { return {0, 2.0 * c_.rows * c_.d * (1 + c_.copies)}; }

 private:
  EmbeddingCase c_;
};

}  // namespace

Cases embedding_cases(uint64_t seed) {
  Cases cases;
  for (const EmbeddingCase& c : kEmbeddingCases) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
