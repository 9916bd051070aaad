#include "ops/experts/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;
using testing::HostWeight;

TEST(Experts, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::experts_cases); }

constexpr int kD = 32;

// Diagonal matrices: channel i of the expert sees channel i of x only.
HostWeight diagonal(double gain) {
  std::vector<float> w(kD * kD);
  for (int i = 0; i < kD; ++i) w[i * kD + i] = static_cast<float>(gain);
  return testing::bf16_weight(w, kD, kD);
}

class Pair final : public ExpertStore {
 public:
  explicit Pair(std::vector<FeedForward> experts, int remote = -1) : experts_(std::move(experts)), remote_(remote) {}
  int count() const override { return static_cast<int>(experts_.size()); }
  bool is_local(int expert) const override { return expert != remote_; }
  const FeedForward& expert(int expert) const override { return experts_[expert]; }
  void hint(const int32_t*, int) const override {}

 private:
  std::vector<FeedForward> experts_;
  int remote_;
};

double silu(double x) { return x / (1 + std::exp(-x)); }

// The gate is clamped from above only, `up` from both sides, and the routing weight applies to routed experts only.
TEST(ExpertsReference, ClampsAndWeights) {
  HostContext context(Numerics::fp32);
  Backend backend(reference_operators(), context);
  const HostWeight one = diagonal(1), two = diagonal(2), minus = diagonal(-1), half = diagonal(0.5);
  const auto feed_forward = [&](const HostWeight& w1, const HostWeight& w3, const HostWeight& w2) {
    return FeedForward{backend.weight(w1), backend.weight(w3), backend.weight(w2)};
  };
  std::vector<float> x(kD);
  for (int i = 0; i < kD; ++i) x[i] = static_cast<float>(i) - 15.5f;

  ExpertsArgs args;
  args.rows = 1;
  args.topk = 2;
  args.limit = 3;
  args.x = backend.activations(x, 1, kD);
  args.ids = backend.i32({0, 2}, 1, 2);
  args.weights = backend.f32({0.75f, 0.125f}, 1, 2);
  args.shared = feed_forward(half, one, one);
  args.y = backend.output_activations(1, kD);
  for (const int remote : {-1, 2}) {
    const Pair store({feed_forward(one, two, half), feed_forward(two, two, two), feed_forward(minus, one, two)},
                     remote);
    args.experts = &store;
    reference::experts(context, args);
    for (int i = 0; i < kD; ++i) {
      const double v = x[i], up = std::clamp(v, -3.0, 3.0);
      double want =
          0.5 * 0.75 * silu(std::min(v, 3.0)) * std::clamp(2 * v, -3.0, 3.0) + silu(std::min(v / 2, 3.0)) * up;
      if (remote < 0) want += 2 * 0.125 * silu(std::min(-v, 3.0)) * up;
      EXPECT_NEAR(args.y.f32()[i], want, 3e-7 * (1 + std::fabs(want))) << i;
    }
  }
}

// The weight is applied in front of w2, where the product is rounded: bf16(w * a) and not bf16(w * bf16(a)).
TEST(ExpertsReference, WeightComesBeforeTheRounding) {
  HostContext context(Numerics::bf16);
  Backend backend(reference_operators(), context);
  const HostWeight one = diagonal(1), zero = diagonal(0);
  const Pair store({FeedForward{backend.weight(one), backend.weight(one), backend.weight(one)}});
  std::vector<float> x(kD);
  for (int i = 0; i < kD; ++i) x[i] = 0.5f + static_cast<float>(i) / 16;  // exact in bf16
  ExpertsArgs args;
  args.rows = 1;
  args.topk = 1;
  args.x = backend.activations(x, 1, kD);
  args.ids = backend.i32({0}, 1, 1);
  args.weights = backend.f32({0.7f}, 1, 1);
  args.experts = &store;
  args.shared = {backend.weight(zero), backend.weight(zero), backend.weight(zero)};
  args.y = backend.output_activations(1, kD);
  reference::experts(context, args);
  int differs = 0;
  for (int i = 0; i < kD; ++i) {
    const double a = silu(x[i]) * x[i];
    EXPECT_EQ(args.y.f32()[i], round_bf16(static_cast<float>(0.7f * a))) << i;
    differs += args.y.f32()[i] != round_bf16(0.7f * round_bf16(static_cast<float>(a)));
  }
  EXPECT_GT(differs, 0);  // the vector tells the two apart
}

}  // namespace
}  // namespace hadal
