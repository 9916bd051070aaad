#include "ops/hyper_connection/cases.h"

#include <memory>

#include "ops/reference_math.h"
#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class HyperConnectionTest final : public OperatorCase {
 public:
  HyperConnectionTest(const HyperConnectionCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const int copies = c_.copies, d = c_.d, wide = copies * d, mixes = (2 + copies) * copies;
    const int in_rows = c_.mapped ? 2 * c_.rows + 1 : c_.rows;
    const int y_rows = c_.mapped ? c_.rows + 3 : c_.rows;

    const auto args = std::make_shared<HyperConnectionArgs>();
    args->rows = c_.rows;
    args->copies = copies;
    args->d = d;
    args->in.h = backend.activations(random.normals(int64_t{in_rows} * wide, c_.size), in_rows, wide);
    args->in.pre = backend.f32(random.uniforms(in_rows * copies, 0.1, 1.2), in_rows, copies);
    args->in.post = backend.f32(random.uniforms(in_rows * copies, 0, 2), in_rows, copies);
    args->in.comb = backend.f32(random.uniforms(in_rows * copies * copies, 0.02, 0.6), in_rows, copies * copies);
    if (c_.y) args->y = backend.activations(random.normals(int64_t{y_rows} * d, c_.size), y_rows, d);
    if (c_.mapped) {
      std::vector<int32_t> source, y_source;
      for (int r = 0; r < c_.rows; ++r) source.push_back(2 * r + random.integer(0, 1));
      for (int r = 0; r < c_.rows; ++r) y_source.push_back(r + random.integer(0, 3));
      args->source = backend.array(source);
      args->y_source = backend.array(y_source);
    }
    if (c_.norm) {
      args->norm = backend.array(random_norm(random, d));
      args->x = backend.output_activations(c_.rows, d);
    }
    if (c_.collapsed) args->collapsed = backend.output_activations(c_.rows, d);
    if (c_.store_h) args->out.h = c_.in_place ? args->in.h : backend.output_activations(c_.rows, wide);
    args->out.pre = backend.output(c_.rows, copies, DType::f32);

    const auto weights = std::make_shared<HyperConnectionWeights>();
    if (c_.mix) {
      weights->fn = backend.array(random.normals(int64_t{mixes} * wide, mix_gain() / std::sqrt(wide)));
      weights->base = backend.array(c_.fixed_mix ? limits(copies) : random.uniforms(mixes, -2, 2));
      weights->scale = backend.array(random.uniforms(3, 0.5, kScale));
      args->mix = weights.get();
      args->out.post = backend.output(c_.rows, copies, DType::f32);
      args->out.comb = backend.output(c_.rows, copies * copies, DType::f32);
    }

    // And x in the form in which a backend may want it for a linear: beside x, and alone.
    std::vector<HyperConnectionArgs> rounded;
    if (c_.norm && c_.rows > 0 && d % 128 == 0 && backend.operators().linear_input != nullptr) {
      const HostWeight reader{WeightFormat::fp8_block32, 128, d, std::vector<uint8_t>(int64_t{128} * d),
                              std::vector<uint8_t>(4 * (d / 32), 127)};
      const Weight weight = backend.weight(reader);
      for (const bool alone : {false, true}) {
        HyperConnectionArgs again = *args;
        again.x_rounded = backend.output_linear_input(c_.rows, weight, 1);
        if (again.x_rounded.type != DType::u8) break;
        again.x = alone ? Tensor{} : backend.output_activations(c_.rows, d);
        if (c_.store_h) again.out.h = backend.output_activations(c_.rows, wide);
        rounded.push_back(again);
      }
    }

    return {[&backend, args, weights, rounded] {
              for (const HyperConnectionArgs& again : rounded)  // before h is updated in place
                backend.operators().hyper_connection(backend.context(), again);
              backend.operators().hyper_connection(backend.context(), *args);
            },
            [&backend, args, rounded](Outputs& out) {
              const auto keep = [&](const char* name, const Tensor& t) {
                if (t) out[name] = backend.download(t);
              };
              keep("h", args->out.h);
              keep("x", args->x);
              keep("collapsed", args->collapsed);
              keep("pre", args->out.pre);
              keep("post", args->out.post);
              keep("comb", args->out.comb);
              for (const HyperConnectionArgs& again : rounded) {
                keep("x again", again.x);
                out[again.x ? "rounded x" : "rounded x alone"] = backend.download_rounded(again.x_rounded);
              }
            }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    const auto check = [&](const char* name, const Tolerance& tolerance) {
      compare_values(report, name, expected.at(name), actual.at(name), tolerance);
    };
    const Tolerance written = c_.y ? sum(1 + c_.copies) + rounded(numerics) : Tolerance{};
    if (c_.store_h) {
      // Each copy is a sum with a `post` and a column of `comb` of its own, and its partial sums, which are rounded, are of
      // its own size: up to 1.7 times the size of all copies together (post 2 and comb 0.6, where the means of their squares
      // are 1.33 and 0.125). A value of four times its copy's size came out at 1.02 of a tolerance by the whole row's.
      if (c_.y)
        compare_values(report, "h of a copy", reshape(expected.at("h"), c_.d), reshape(actual.at("h"), c_.d),
                       sum(1 + c_.copies) + stored(numerics));
      else
        compare_exactly(report, "h", expected.at("h"), actual.at("h"));
    }
    const Tolerance collapsed = written + sum(c_.copies);
    if (c_.collapsed) check("collapsed", collapsed + stored(numerics));
    // Norm weights reach 2.
    if (c_.norm) check("x", (collapsed + rounded(numerics) + sum(c_.d)) * 2 + stored(numerics));
    if (actual.has("rounded x")) {
      compare_exactly(report, "x again", actual.at("x"), actual.at("x again"));
      Output x = actual.at("x");
      for (int64_t r = 0; r < x.rows; ++r) round_fp8_128(x.f32.data() + r * x.cols, static_cast<int>(x.cols));
      compare_exactly(report, "rounded x", x, actual.at("rounded x"));
      compare_exactly(report, "rounded x alone", x, actual.at("rounded x alone"));
    }
    if (!c_.mix) {
      compare_exactly(report, "pre", expected.at("pre"), actual.at("pre"));
      return;
    }
    // z = scale * m + base. The sigmoids' slopes are below 1; an entry of comb moves by up to twice its own size times the
    // error of z, which the Sinkhorn steps hand on; they add their own roundings.
    const Tolerance z = (written + sum(c_.copies * c_.d)) * (mix_gain() * kScale);
    // The exponentials' arguments are rounded in units of their size: up to 20, and 2 plus some deviations of m.
    const Tolerance exponent = random_error(kUnitF32 * (c_.fixed_mix ? 20 : 8));
    const Tolerance mixed = exponent + Tolerance{2 * z.of_scale, z.of_scale, 2 * z.deviation} + stored_as(kUnitF32);
    check("pre", mixed);
    check("post", mixed);
    check("comb", mixed + sum(2 * HyperConnectionArgs{}.sinkhorn_iters * c_.copies));
  }

  Work work() const override {
    const double wide = double(c_.copies) * c_.d, mixes = (2 + c_.copies) * c_.copies;
    return {c_.rows * (2 * wide * (c_.mix ? mixes : 0) + 2 * wide * (c_.y ? c_.copies + 1 : 0) + 2 * wide),
            2 * c_.rows * (2 * wide + 2 * c_.d) + (c_.mix ? 4 * mixes * wide : 0)};
  }

 private:
  double mix_gain() const { return c_.fixed_mix ? 0 : 1.5; }  // deviation of m

  // Sigmoids that vanish, so that the added hc_eps is all that is left of `pre`; and a matrix on which every Sinkhorn
  // iteration still changes the fourth digit.
  static std::vector<float> limits(int copies) {
    std::vector<float> base(2 * copies, -20.0f);
    for (int j = 0; j < copies; ++j)
      for (int k = 0; k < copies; ++k) base.push_back(static_cast<float>((7 * j + 11 * k * k + 3 * j * k) % 23 - 11));
    return base;
  }

  static constexpr double kScale = 1.5;  // largest of the three scales
  HyperConnectionCase c_;
};

class TapTest final : public OperatorCase {
 public:
  TapTest(const TapCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const int wide = c_.copies * c_.d, in_rows = c_.mapped ? c_.rows + 4 : c_.rows;
    TapArgs args;
    args.rows = c_.rows;
    args.copies = c_.copies;
    args.d = c_.d;
    args.h = backend.activations(random.normals(int64_t{in_rows} * wide), in_rows, wide);
    if (c_.mapped) {
      std::vector<int32_t> source = random.permutation(in_rows);
      source.resize(c_.rows);
      args.source = backend.array(source);
    }
    // Its neighbours in a row must stay as they are.
    args.out = backend.activations(random.normals(int64_t{c_.rows} * c_.taps * c_.d), c_.rows, int64_t{c_.taps} * c_.d);
    args.column = (c_.taps - 1) / 2 * c_.d;
    return {[&backend, args] { backend.operators().tap(backend.context(), args); },
            [&backend, args](Outputs& out) { out["out"] = backend.download(args.out); }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    compare_values(report, "out", expected.at("out"), actual.at("out"), sum(c_.copies) + stored(numerics));
  }

  Work work() const override { return {double(c_.rows) * c_.copies * c_.d, 2.0 * c_.rows * c_.d * (c_.copies + 1)}; }

 private:
  TapCase c_;
};

}  // namespace

Cases hyper_connection_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kHyperConnectionCases) cases.push_back(std::make_unique<HyperConnectionTest>(c, seed));
  return cases;
}

Cases tap_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kTapCases) cases.push_back(std::make_unique<TapTest>(c, seed));
  return cases;
}

}  // namespace hadal::testing
