#include "ops/attention_input/cases.h"

#include <fmt/format.h>

#include "ops/attention_input/reference.h"
#include "ops/testing/backend.h"
#include "ops/testing/compare.h"

namespace hadal::testing {
namespace {

class Test final : public OperatorCase {
 public:
  Test(const AttentionInputCase& c, uint64_t seed) : OperatorCase(c.name, seed), c_(c) {}

  Prepared prepare(Backend& backend) const override {
    Random random = this->random();
    const HostStep host = make_step(random, c_.segments);
    const auto step = std::make_shared<DeviceStep>(backend, host);
    const int width = c_.heads * c_.head_dim;

    const auto args = std::make_shared<AttentionInputArgs>();
    const std::vector<float> x = random.normals(int64_t{host.all.rows()} * c_.d, c_.size, 8);
    args->x = backend.activations(x, host.all.rows(), c_.d);
    args->in = &step->all;
    args->heads = c_.heads;
    args->head_dim = c_.head_dim;
    args->rope = {backend.array(inverse_frequencies(c_.rope_dim)), c_.rope_dim};
    args->wkv = backend.weight(random_weight(random, WeightFormat::fp8_block32, c_.head_dim, c_.d));
    args->kv_norm = backend.array(random_norm(random, c_.head_dim));
    args->latent = backend.output(host.all.rows(), bytes(), DType::u8);
    if (c_.queries) {
      args->out = &step->kept;
      const bool suffix = host.kept.rows() != host.all.rows();
      if (suffix) args->source = backend.array(host.kept.step_row);  // x holds all rows of the step
      args->wq_a = backend.weight(random_weight(random, WeightFormat::fp8_block32, c_.q_lora, c_.d));
      args->q_norm = backend.array(random_norm(random, c_.q_lora));
      args->wq_b = backend.weight(random_weight(random, WeightFormat::fp8_block32, width, c_.q_lora));
      args->qr = backend.output_activations(host.kept.rows(), c_.q_lora);
      args->q = backend.output_activations(host.kept.rows(), width);
    }

    // And with x rounded before, alone where it can be.
    const auto again = std::make_shared<AttentionInputArgs>(*args);
    again->x_rounded = backend.rounded(args->wkv, x, host.all.rows());
    if (again->x_rounded) {
      if (args->source == nullptr) again->x = {};
      again->latent = backend.output(host.all.rows(), bytes(), DType::u8);
      if (c_.queries) {
        again->qr = backend.output_activations(host.kept.rows(), c_.q_lora);
        again->q = backend.output_activations(host.kept.rows(), width);
      }
    }

    return {[&backend, args, again, step] {
              backend.operators().attention_input(backend.context(), *args);
              if (again->x_rounded) backend.operators().attention_input(backend.context(), *again);
            },
            [&backend, args, again, step, this](Outputs& out) {
              if (again->x_rounded) {
                out["latent again"] = backend.download(again->latent);
                if (c_.queries) out["q again"] = backend.download(again->q);
              }
              out["latent"] = backend.download(args->latent);
              if (c_.queries) {
                out["qr"] = backend.download(args->qr);
                out["q"] = backend.download(args->q);
              }
              if (backend.is_reference())
                out["unrounded"] = {
                    step->all.rows, c_.head_dim, reference::window_latents(backend.numerics(), *args), {}, {}};
            }};
  }

  void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const override {
    if (actual.has("latent again"))
      compare_exactly(report, "latent again", actual.at("latent"), actual.at("latent again"));
    if (actual.has("q again")) compare_exactly(report, "q again", actual.at("q"), actual.at("q again"));
    // Norm weights reach 2. The rotation moves a value to its partner, so its rounding counts in units of the row.
    const Tolerance latent =
        (products(numerics, c_.d) + rounded(numerics) + sum(c_.head_dim)) * 2 + rounded(numerics) + stored(numerics);
    const Output &unrounded = expected.at("unrounded"), &rows = actual.at("latent");
    for (int64_t r = 0; r < unrounded.rows; ++r)
      compare_packed_row(report, fmt::format("latent[{}]", r), RowFormat::fp8_ue8m0_32, c_.head_dim, unrounded.f(r),
                         rows.u(r), latent);
    if (!c_.queries) return;
    const Tolerance qr = (products(numerics, c_.d) + rounded(numerics) + sum(c_.q_lora)) * 2;
    compare_values(report, "qr", expected.at("qr"), actual.at("qr"), qr + stored(numerics));
    compare_values(report, "q", reshape(expected.at("q"), c_.head_dim), reshape(actual.at("q"), c_.head_dim),
                   qr + requantised(numerics, c_.q_lora) + rounded(numerics) * 2 + products(numerics, c_.q_lora) +
                       stored(numerics));
  }

  Work work() const override {
    double in = 0, out = 0;
    for (const StepSegment& s : c_.segments) {
      in += s.count;
      if (c_.queries) out += s.kept < 0 ? s.count : s.kept;
    }
    const double width = double(c_.heads) * c_.head_dim;
    const auto fp8 = [](double n, double k) { return weight_bytes(WeightFormat::fp8_block32, n, k); };
    return {2 * in * c_.d * c_.head_dim + 2 * out * c_.q_lora * (c_.d + width),
            fp8(c_.head_dim, c_.d) + (c_.queries ? fp8(c_.q_lora, c_.d) + fp8(width, c_.q_lora) : 0) +
                in * (2 * c_.d + static_cast<double>(bytes())) + 2 * out * (c_.q_lora + width)};
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, c_.head_dim)); }
  AttentionInputCase c_;
};

}  // namespace

Cases attention_input_cases(uint64_t seed) {
  Cases cases;
  for (const auto& c : attention_input_list()) cases.push_back(std::make_unique<Test>(c, seed));
  return cases;
}

}  // namespace hadal::testing
