#include "ops/draft/cases.h"

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class ContextTest final : public OperatorCase {
 public:
  ContextTest(const DraftContextCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const int k = c_.taps * c_.d;
    DraftContextArgs args;
    args.rows = c_.rows;
    args.main_hidden = backend.activations(random.normals(int64_t{c_.rows} * k, c_.size, 8), c_.rows, k);
    args.main_proj = backend.weight(random_weight(random, WeightFormat::fp8_block32, c_.d, k));
    args.main_norm = backend.array(random_norm(random, c_.d));
    args.main_x = backend.output_activations(c_.rows, c_.d);
    return {[&backend, args] { backend.operators().draft_context(backend.context(), args); },
            [&backend, args](Outputs& out) { out["main_x"] = backend.download(args.main_x); }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    // Norm weights reach 2.
    compare_values(report, "main_x", expected.at("main_x"), actual.at("main_x"),
                   (products(numerics, c_.taps * c_.d) + rounded(numerics) + sum(c_.d)) * 2 + stored(numerics));
  }

  Work work() const override {
    const double k = double(c_.taps) * c_.d;
    return {2 * c_.rows * k * c_.d, weight_bytes(WeightFormat::fp8_block32, c_.d, k) + 2 * c_.rows * (k + c_.d)};
  }

 private:
  DraftContextCase c_;
};

class LogitsTest final : public OperatorCase {
 public:
  LogitsTest(const DraftLogitsCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    std::vector<int32_t> tokens(c_.rows);
    for (int r = 0; r < c_.rows; ++r) tokens[r] = r == 0 ? c_.vocab - 1 : random.integer(0, c_.vocab - 1);
    DraftLogitsArgs args;
    args.rows = c_.rows;
    args.tokens = backend.array(tokens);
    args.base = backend.f32(random.normals(int64_t{c_.rows} * c_.vocab), c_.rows, c_.vocab);
    args.hidden = backend.activations(random.normals(int64_t{c_.rows} * c_.d), c_.rows, c_.d);
    // Gains that make both parts of the logits, and of the confidence's sum, count.
    args.markov_embed =
        backend.weight(random_weight(random, WeightFormat::bf16, c_.vocab, c_.rank, std::sqrt(c_.rank)));
    args.markov_head = backend.weight(random_weight(random, WeightFormat::bf16, c_.vocab, c_.rank));
    args.confidence = backend.weight(random_weight(random, WeightFormat::bf16, 1, c_.d + c_.rank));
    args.logits = backend.output(c_.rows, c_.vocab, DType::f32);
    args.probability = backend.output(c_.rows, 1, DType::f32);
    return {[&backend, args] { backend.operators().draft_logits(backend.context(), args); },
            [&backend, args](Outputs& out) {
              out["logits"] = backend.download(args.logits);
              out["probability"] = backend.download(args.probability);
            }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    compare_values(report, "logits", expected.at("logits"), actual.at("logits"),
                   sum(c_.rank + 1) + stored_as(kUnitF32));
    // sigma of a sum of size 1: its slope is at most 1/4, its own size about 1/2.
    compare_values(report, "probability", expected.at("probability"), actual.at("probability"),
                   sum(c_.d + c_.rank) + stored_as(kUnitF32));
  }

  Work work() const override {
    return {2.0 * c_.rows * (double(c_.vocab) * c_.rank + c_.d + c_.rank),
            2.0 * c_.vocab * c_.rank + c_.rows * 8.0 * c_.vocab};
  }

 private:
  DraftLogitsCase c_;
};

}  // namespace

Cases draft_context_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kDraftContextCases) cases.push_back(std::make_unique<ContextTest>(c, seed));
  return cases;
}

Cases draft_logits_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kDraftLogitsCases) cases.push_back(std::make_unique<LogitsTest>(c, seed));
  return cases;
}

}  // namespace hadal::testing
