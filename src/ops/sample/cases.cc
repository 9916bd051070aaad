#include "ops/sample/cases.h"

#include <limits>

#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

enum class Logits { normal, ties, equal, broken, impossible };

struct Case {
  const char* name;
  int rows, vocab;
  Logits kind;
  bool top_k, top_p, min_p;
  double temperature;  // of the second row on; the first has 0
};
constexpr Case kCases[] = {
    {"no rows", 0, 64, Logits::normal, false, false, false, 1},
    {"one token", 2, 1, Logits::normal, true, true, true, 1},
    {"noise alone", 40, 1031, Logits::normal, false, false, false, 1},
    {"noise alone, hot", 20, 5000, Logits::normal, false, false, false, 100},
    {"noise alone, cold", 20, 5000, Logits::normal, false, false, false, 0.01},
    {"top k", 40, 1031, Logits::normal, true, false, false, 1.3},
    {"top p", 40, 1031, Logits::normal, false, true, false, 1},
    {"top p, hot", 20, 5000, Logits::normal, false, true, false, 30},
    {"min p", 40, 1031, Logits::normal, false, false, true, 0.8},
    {"all filters", 40, 4099, Logits::normal, true, true, true, 2},
    {"ties", 40, 3001, Logits::ties, true, true, true, 1.5},
    {"ties, top p", 40, 3001, Logits::ties, false, true, false, 1.5},
    {"equal logits", 20, 5003, Logits::equal, true, true, true, 1},
    {"equal logits, top k", 20, 5003, Logits::equal, true, false, false, 1},
    {"not a number", 6, 700, Logits::broken, true, true, true, 1},
    {"impossible tokens", 20, 700, Logits::impossible, true, true, true, 1},
    {"release vocabulary", 9, 129280, Logits::normal, false, false, false, 0.6},
    {"release vocabulary, top p", 9, 129280, Logits::normal, false, true, false, 1},
};

class Test final : public OperatorCase {
 public:
  Test(const Case& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    std::vector<SampleRow> rows(static_cast<size_t>(c_.rows));
    const std::vector<int32_t> order = random.permutation(c_.rows);
    for (int r = 0; r < c_.rows; ++r) {
      SampleRow& row = rows[static_cast<size_t>(r)];
      row.logits_row = order[static_cast<size_t>(r)];
      row.temperature = r == 0 ? 0 : c_.temperature * (0.5 + random.uniform());
      if (c_.top_k) row.top_k = random.integer(0, c_.vocab + 3) >> random.integer(0, 10);
      if (c_.top_p) row.top_p = 1 - random.uniform();
      if (c_.min_p) row.min_p = random.uniform() * random.uniform();
      row.seed = random.bits();
      row.position = random.integer(0, 1 << 20);
    }
    SampleArgs args;
    args.rows = c_.rows;
    args.row = backend.array(rows);
    args.logits = backend.f32(logits(random), c_.rows, c_.vocab);
    args.token = backend.output(c_.rows, 1, DType::i32);
    return {[&backend, args] { backend.operators().sample(backend.context(), args); },
            [&backend, args](Outputs& out) { out["token"] = backend.download(args.token); }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    compare_exactly(report, "token", expected.at("token"), actual.at("token"));
  }

  Work work() const override { return {0, 4.0 * c_.rows * c_.vocab}; }

 private:
  std::vector<float> logits(Random& random) const {
    std::vector<float> values = random.normals(int64_t{c_.rows} * c_.vocab, 3);
    for (size_t i = 0; i < values.size(); ++i) {
      float& v = values[i];
      if (c_.kind == Logits::ties) v = std::round(2 * v) / 2;  // and both zeros
      if (c_.kind == Logits::equal) v = 1.25f;
      if (c_.kind == Logits::impossible && random.integer(0, 9) > 0) v = -std::numeric_limits<float>::infinity();
      if (c_.kind == Logits::broken && i % 1999 == 1998) v = std::numeric_limits<float>::quiet_NaN();
    }
    return values;
  }

  Case c_;
};

}  // namespace

Cases sample_cases(uint64_t seed) {
  Cases cases;
  for (const Case& c : kCases) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
