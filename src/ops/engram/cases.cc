#include "ops/engram/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/dtype.h"
#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class GatherTest final : public OperatorCase {
 public:
  GatherTest(const EngramGatherCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    std::vector<uint8_t> codes(int64_t{c_.table_rows} * c_.dim), scales(int64_t{c_.table_rows} * c_.dim / 32);
    for (uint8_t& code : codes) {
      do code = static_cast<uint8_t>(random.bits());
      while ((code & 0x7f) == 0x7f);
    }
    // Every product stays a normal bf16, as published rows do.
    for (uint8_t& scale : scales) scale = static_cast<uint8_t>(random.integer(100, 140));
    std::vector<uint32_t> index(int64_t{c_.rows} * c_.columns);
    for (uint32_t& i : index) i = static_cast<uint32_t>(random.integer(0, c_.table_rows - 1));
    if (!index.empty()) index.front() = static_cast<uint32_t>(c_.table_rows - 1);
    if (!index.empty()) index.back() = 0;

    EngramGatherArgs args;
    args.rows = c_.rows;
    args.columns = c_.columns;
    args.index = backend.array(index);
    args.table = {backend.array(codes), backend.array(scales), c_.table_rows, c_.dim};
    const int width = c_.columns * c_.dim;
    args.out = backend.output_activations(c_.rows, width);
    // And the form in which a backend may want it for wkv instead.
    EngramGatherArgs rounded = args;
    if (backend.operators().linear_input != nullptr && c_.rows > 0) {
      const HostWeight wkv{WeightFormat::fp8_block32, 128, width, std::vector<uint8_t>(int64_t{128} * width),
                           std::vector<uint8_t>(4 * ((width + 31) / 32), 127)};
      rounded.out = backend.operators().linear_input(backend.context(), c_.rows, backend.weight(wkv), 1);
    }
    return {[&backend, args, rounded] {
              backend.operators().engram_gather(backend.context(), args);
              if (rounded.out.type == DType::u8) backend.operators().engram_gather(backend.context(), rounded);
            },
            [&backend, args, rounded](Outputs& out) {
              out["out"] = backend.download(args.out);
              if (rounded.out.type == DType::u8) out["rounded out"] = backend.download_rounded(rounded.out);
            }};
  }

  void compare(Numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    compare_exactly(report, "out", expected.at("out"), actual.at("out"));
    if (!actual.has("rounded out")) return;
    Output rounded = expected.at("out");
    for (int64_t r = 0; r < rounded.rows; ++r)
      round_fp8_128(rounded.f32.data() + r * rounded.cols, static_cast<int>(rounded.cols));
    compare_exactly(report, "rounded out", rounded, actual.at("rounded out"));
  }

  Work work() const override {
    const double values = double(c_.rows) * c_.columns * c_.dim;
    return {0, values * (1 + 1.0 / 32 + 2)};
  }

 private:
  EngramGatherCase c_;
};

class ApplyTest final : public OperatorCase {
 public:
  ApplyTest(const EngramApplyCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const int64_t wide = int64_t{c_.copies} * c_.d;
    std::vector<float> e = random.normals(int64_t{c_.rows} * c_.inner);
    std::vector<float> h = random.normals(c_.rows * wide, c_.input == EngramInput::tiny ? 1e-5 : 1);
    HostWeight wkv = random_weight(random, WeightFormat::fp8_block32, (c_.copies + 1) * c_.d, c_.inner);
    std::vector<uint16_t> q_weight = random_norm(random, static_cast<int>(wide));
    const std::vector<uint16_t> k_weight = random_norm(random, static_cast<int>(wide));
    std::vector<uint8_t> dead(c_.rows);
    for (uint8_t& flag : dead) flag = c_.dead && random.integer(0, 2) == 0;

    if (c_.input == EngramInput::nothing) std::fill(h.begin(), h.end(), 0.0f);
    if (c_.input == EngramInput::opposite) {
      // Key weights of rank one and a residual along (even rows) or against them: |dot| of about sqrt(d).
      for (int64_t i = 0; i < (c_.copies + 1) * int64_t{c_.d} * c_.inner; ++i)
        wkv.data[i] = static_cast<uint8_t>((wkv.data[i / c_.inner * c_.inner] & 0x80) | 0x38);
      std::fill(wkv.scale.begin(), wkv.scale.end(), uint8_t{124});
      for (float& v : e) v = std::fabs(v);
      for (int r = 0; r < c_.rows; ++r)
        for (int64_t i = 0; i < wide; ++i)
          h[r * wide + i] = ((wkv.data[i * c_.inner] & 0x80) != 0) == (r % 2 == 0) ? -1.0f : 1.0f;
      std::fill(q_weight.begin(), q_weight.end(), hadal::to_bf16(1.0f));
    }

    EngramApplyArgs args;
    args.rows = c_.rows;
    args.copies = c_.copies;
    args.d = c_.d;
    args.e = backend.activations(e, c_.rows, c_.inner);
    args.wkv = backend.weight(wkv);
    args.q_weight = backend.array(q_weight);
    args.k_weight = backend.array(k_weight);
    if (c_.dead) args.dead = backend.array(dead);
    args.h = backend.activations(h, c_.rows, wide);
    args.gate = backend.output(c_.rows, c_.copies, DType::f32);
    return {[&backend, args] { backend.operators().engram_apply(backend.context(), args); },
            [&backend, args](Outputs& out) {
              out["h"] = backend.download(args.h);
              out["gate"] = backend.download(args.gate);
            }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    // Key and value; then the dot product of two normalised vectors with weights around 1, over sqrt(d): of size 1, or
    // sqrt(d) where the vectors are parallel.
    const Tolerance projected = products(numerics, c_.inner) + rounded(numerics);
    const double dot_error = 2 * (projected + sum(3 * c_.d)).of_scale;
    const Output &want_h = expected.at("h"), &want_gate = expected.at("gate"), &have_gate = actual.at("gate");
    const Output want = reshape(want_h, c_.d), have = reshape(actual.at("h"), c_.d);

    for (int64_t i = 0; i < static_cast<int64_t>(want_gate.f32.size()); ++i) {
      const float e = want_gate.f32[i], a = have_gate.f32[i];
      if (e == 0) {  // an image position
        report.add(a == 0 ? 0 : 2, [&] { return "the gate of an image position"; });
        compare_row(report, "h", want, have, i, {});
        continue;
      }
      if (c_.input == EngramInput::nothing)  // the dot product is exactly 0
        report.add(std::fabs(a - e) / (4 * kUnitF32),
                   [&] { return fmt::format("gate[{}] = {:.9g}, expected {:.9g}", i, a, e); });
      // Back to the dot product: there errors are even, while the gate's slope runs from 0 to 500. The floor hides 1e-6.
      const double allowed = dot_error * std::max(1.0, std::fabs(dot_of(e))) + 2e-6 + 2 * kUnitF32 * slope_of_dot(e);
      report.add(std::fabs(dot_of(a) - dot_of(e)) / allowed,
                 [&] { return fmt::format("gate[{}] = {:.9g}, expected {:.9g}", i, a, e); });
      // What the gate may be off by, times a value (kSigmas deviations at most), plus the error of the value.
      const double gate_error = gate_of(dot_of(e) + allowed) - gate_of(dot_of(e) - allowed);
      compare_row(report, "h", want, have, i,
                  projected + sum(3) + stored(numerics) + Tolerance{0, kSigmas * gate_error, 0});
    }
  }

  Work work() const override {
    const double out = (c_.copies + 1.0) * c_.d;
    return {2.0 * c_.rows * c_.inner * out, weight_bytes(WeightFormat::fp8_block32, out, c_.inner) +
                                                2.0 * c_.rows * (c_.inner + 2.0 * c_.copies * c_.d)};
  }

 private:
  static double gate_of(double dot) {
    return 1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot)));
  }
  static double dot_of(double gate) {
    const double logit = std::log(gate / (1 - gate));
    return logit * std::fabs(logit);
  }
  // |d dot / d gate|
  static double slope_of_dot(double gate) { return 2 * std::fabs(std::log(gate / (1 - gate))) / (gate * (1 - gate)); }

  EngramApplyCase c_;
};

}  // namespace

Cases engram_gather_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kEngramGatherCases) cases.push_back(std::make_unique<GatherTest>(c, seed));
  return cases;
}

Cases engram_apply_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : kEngramApplyCases) cases.push_back(std::make_unique<ApplyTest>(c, seed));
  return cases;
}

}  // namespace hadal::testing
