// What the operators' own tests do not ask for: every instruction set, every number of threads, and equal bits however the
// rows of a step are put together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/cpu/context.h"
#include "ops/cpu/fold.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/top_k.h"
#include "ops/reference_math.h"
#include "ops/testing/runner.h"

namespace hadal {
namespace {

constexpr uint64_t kSeed = 20261129;

// Folded bytes, read as published ones, are what the reference makes of the weight: every bit, odd shapes and scales far
// apart included.
TEST(FoldWeight, IsTheReferences) {
  testing::Random random(kSeed);
  for (const auto& [n, k] : {std::pair{32, 128}, {70, 160}, {33, 32}, {64, 384}}) {
    for (const int spread : {0, 1, 7, 250}) {
      testing::HostWeight host = testing::random_weight(random, WeightFormat::fp8_block32, n, k);
      for (uint8_t& s : host.scale)
        s = static_cast<uint8_t>(random.integer(spread == 250 ? 0 : 120, spread == 250 ? 240 : 120 + spread));
      for (size_t i = 0; i < host.data.size(); i += 3) host.data[i] = static_cast<uint8_t>(random.integer(0, 126));
      const Weight w{host.format, n, k, host.data.data(), host.scale.data()};
      std::vector<uint8_t> codes(host.data.size()), scales(host.scale.size());
      cpu::fold_weight(w, codes.data(), scales.data());
      const Weight folded{host.format, n, k, codes.data(), scales.data()};
      EXPECT_EQ(cpu::needs_folding(w), spread != 0 && k > 32);
      EXPECT_FALSE(cpu::needs_folding(folded));
      for (int64_t r = 0; r < n; ++r) {
        const reference::Row got = reference::weight_row(folded, r), exact = reference::weight_row(w, r);
        EXPECT_EQ(got, reference::weight_row(Numerics::fp8, w, r)) << n << " x " << k << ", row " << r;
        for (int c = 0; c < k; ++c)
          EXPECT_LE(std::fabs(double{got[c]} - exact[c]),
                    0x1p-10 * from_ue8m0(scales[r / 32 * ((k + 31) / 32) + c / 32]));
      }
    }
  }
}

std::string test_name(Isa isa) {
  std::string name(to_string(isa));
  std::erase(name, '-');
  return name;
}

class EveryIsaAndOperator : public ::testing::TestWithParam<std::tuple<Isa, testing::OperatorCases>> {};

TEST_P(EveryIsaAndOperator, MatchesTheReference) {
  const auto& [isa, op] = GetParam();
  const testing::Device device{&cpu_operators(), [isa = isa](Numerics numerics) {
                                 return std::make_unique<CpuContext>(numerics, /*threads=*/1, isa);
                               }};
  for (const auto& result : testing::run_cases(op.make(kSeed), device))
    EXPECT_TRUE(result.passed) << result.name << " (" << to_string(result.numerics) << "): " << result.message;
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryIsaAndOperator,
                         ::testing::Combine(::testing::ValuesIn(supported_isas()),
                                            ::testing::ValuesIn(testing::operator_cases())),
                         [](const auto& test) {
                           return test_name(std::get<0>(test.param)) + "_" + std::get<1>(test.param).op;
                         });

class EveryIsa : public ::testing::TestWithParam<Isa> {};

// Weights of every format times rows that go together in ones, threes and all at once, on one and on four threads.
TEST_P(EveryIsa, RowsDoNotDependOnTheirBatch) {
  testing::Random random(kSeed);
  constexpr int kRows = 41, kOutputs = 70, kColumns = 160;  // rows enough for tiles of decoded weights
  for (const auto& [format, extreme] : {std::pair{WeightFormat::f32, false},
                                        {WeightFormat::bf16, false},
                                        {WeightFormat::fp8_block32, false},
                                        {WeightFormat::fp8_block32, true},
                                        {WeightFormat::mxfp4, false},
                                        {WeightFormat::mxfp4, true}}) {
    testing::HostWeight host = testing::random_weight(random, format, kOutputs, kColumns);
    if (extreme && format == WeightFormat::mxfp4)  // some blocks of some outputs far from the others
      for (size_t i = 0; i < host.scale.size(); i += 1 + random.bits() % 40)
        host.scale[i] = static_cast<uint8_t>(random.integer(0, 250));
    if (extreme && format == WeightFormat::fp8_block32)  // 32 outputs so small that their exponents end
      for (size_t i = 0; i < kColumns / 32; ++i)
        host.scale[kColumns / 32 + i] = static_cast<uint8_t>(random.integer(2, 12));
    const Weight weight{format, kOutputs, kColumns, host.data.data(), host.scale.data()};
    std::vector<float> x(kRows * kColumns);
    for (float& v : x) v = round_bf16(static_cast<float>(random.normal()));
    for (const Numerics numerics : {Numerics::fp32, Numerics::bf16, Numerics::official, Numerics::fp8}) {
      std::vector<float> first;
      for (const int threads : {1, 4}) {
        CpuContext context(numerics, threads, GetParam());
        for (const int batch : {kRows, 1, 3, 7, 30}) {
          std::vector<float> y(kRows * kOutputs);
          for (int r = 0; r < kRows; r += batch) {
            const int rows = std::min(batch, kRows - r);
            Scratch scratch(context);
            const cpu::Input input = cpu::prepare(context, scratch, x.data() + r * kColumns, kColumns, rows, weight);
            cpu::multiply(context, {{.weight = &weight,
                                     .x = input,
                                     .rows = rows,
                                     .y = y.data() + r * kOutputs,
                                     .y_stride = kOutputs,
                                     .round = false}});
          }
          if (first.empty()) first = y;
          EXPECT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0)
              << "format " << static_cast<int>(format) << (extreme ? ", extreme scales" : "") << ", batch " << batch
              << ", " << threads << " threads, " << to_string(numerics);
        }
      }
    }
  }
}

// Sizes within a block that are far apart, values whose bits are all ones, blocks of zeros and of subnormals. Paths that write an
// input as whole numbers may lose what is below 2^-15 of the largest of its block (digits.inc), the others nothing but the
// roundings of their sums.
TEST_P(EveryIsa, Mxfp4ProductsOfInputsOfAnySize) {
  testing::Random random(kSeed);
  constexpr int kRows = 9, kMost = 70, kColumns = 288;
  testing::HostWeight host = testing::random_weight(random, WeightFormat::mxfp4, kMost, kColumns);
  std::vector<float> x(kRows * kColumns);
  for (int i = 0; i < kRows * kColumns; ++i) {
    const int block = i / 32, spread = block % 5 * 4, base = block % 3 == 0 ? 60 : block % 3 == 1 ? -60 : 0;
    x[i] = round_bf16(std::ldexp(static_cast<float>(random.normal()), base - random.integer(0, spread)));
    if (i % 97 == 0) x[i] = std::ldexp(i % 2 == 0 ? 255.0f : -255.0f, base - 7);
    if (block % 11 == 10) x[i] = block % 2 == 0 ? 0.0f : std::ldexp(x[i], -130 - base);
  }
  CpuContext context(Numerics::bf16, 1, GetParam());
  for (const auto& [rows, outputs] : {std::pair{1, kMost}, {kRows, kMost}, {1, 3}, {kRows, 3}}) {
    const Weight weight{WeightFormat::mxfp4, outputs, kColumns, host.data.data(), host.scale.data()};
    std::vector<float> y(rows * outputs);
    Scratch scratch(context);
    const cpu::Input input = cpu::prepare(context, scratch, x.data(), kColumns, rows, weight);
    cpu::multiply(context, {{.weight = &weight, .x = input, .rows = rows, .y = y.data(), .y_stride = outputs}});
    for (int n = 0; n < outputs; ++n) {
      const reference::Row w = reference::weight_row(weight, n);
      for (int r = 0; r < rows; ++r) {
        const float* in = x.data() + r * kColumns;
        double exact = 0, allowed = 0, size = 0;
        for (int b = 0; b < kColumns; b += 32) {
          double largest = 0, weights = 0;
          for (int c = b; c < b + 32; ++c) {
            exact += double{w[c]} * in[c];
            size += std::fabs(double{w[c]} * in[c]);
            largest = std::max(largest, std::fabs(double{in[c]}));
            weights += std::fabs(double{w[c]});
          }
          if (input.layout == cpu::Layout::digits) allowed += 0x1p-15 * largest * weights;
        }
        // Each sum of up to kColumns terms rounds as often; products below 2^-126 may be lost.
        allowed += kColumns * 0x1p-24 * size + kColumns * 0x1p-126;
        EXPECT_LE(std::fabs(y[r * outputs + n] - exact), allowed) << "row " << r << " of " << rows << ", output " << n;
      }
    }
  }
}

TEST_P(EveryIsa, Mxfp4ProductsOfWhatIsNoNumber) {
  constexpr int kOutputs = 20, kColumns = 160;
  testing::Random random(kSeed);
  testing::HostWeight host = testing::random_weight(random, WeightFormat::mxfp4, kOutputs, kColumns);
  for (uint8_t& codes : host.data) codes |= 0x11;  // none is zero
  const Weight weight{WeightFormat::mxfp4, kOutputs, kColumns, host.data.data(), host.scale.data()};
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(8 * kColumns, 1.0f), y(8 * kOutputs);
    x[2 * kColumns + 77] = odd;
    CpuContext context(Numerics::bf16, 1, GetParam());
    for (const int rows : {3, 8}) {
      Scratch scratch(context);
      const cpu::Input input = cpu::prepare(context, scratch, x.data(), kColumns, rows, weight);
      cpu::multiply(context, {{.weight = &weight, .x = input, .rows = rows, .y = y.data(), .y_stride = kOutputs}});
      for (int r = 0; r < rows; ++r)
        for (int n = 0; n < kOutputs; ++n)
          EXPECT_EQ(std::isfinite(y[r * kOutputs + n]), r != 2) << odd << ", row " << r << " of " << rows;
    }
  }
}

class SomeExperts : public ExpertStore {
 public:
  SomeExperts(testing::Random& random, int count, int d, int width) {
    for (int e = 0; e < count; ++e)
      for (const auto& [n, k] : {std::pair{width, d}, {width, d}, {d, width}})
        host_.push_back(testing::random_weight(random, WeightFormat::mxfp4, n, k));
    for (int e = 0; e < count; ++e) experts_.push_back({view(3 * e), view(3 * e + 1), view(3 * e + 2)});
  }
  int count() const override { return static_cast<int>(experts_.size()); }
  bool is_local(int) const override { return true; }
  const FeedForward& expert(int e) const override { return experts_[static_cast<size_t>(e)]; }
  void hint(const int32_t*, int) const override {}

 private:
  Weight view(int i) const {
    const auto& w = host_[static_cast<size_t>(i)];
    return {w.format, w.n, w.k, w.data.data(), w.scale.data()};
  }
  std::vector<testing::HostWeight> host_;
  std::vector<FeedForward> experts_;
};

// The same for the experts, where rows meet others at every expert.
TEST_P(EveryIsa, ExpertsDoNotDependOnTheirBatch) {
  testing::Random random(kSeed);
  constexpr int kRows = 45, kExperts = 5, kTopk = 2, kD = 96, kWidth = 160;
  const SomeExperts store(random, kExperts + 1, kD, kWidth);
  std::vector<float> x = random.normals(int64_t{kRows} * kD), weights(kRows * kTopk, 0.5f);
  for (float& v : x) v = round_bf16(v);
  std::vector<int32_t> ids;
  for (int r = 0; r < kRows; ++r) {
    const int first = random.integer(0, kExperts - 2);
    ids.insert(ids.end(), {first, random.integer(first + 1, kExperts - 1)});
  }
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16, Numerics::official, Numerics::fp8}) {
    std::vector<float> first;
    for (const int threads : {1, 4}) {
      CpuContext context(numerics, threads, GetParam());
      for (const int batch : {kRows, 1, 3, 7}) {
        std::vector<float> y(x.size());
        for (int r = 0; r < kRows; r += batch) {
          const int rows = std::min(batch, kRows - r);
          ExpertsArgs args;
          args.rows = rows;
          args.topk = kTopk;
          args.x = {x.data() + r * kD, DType::f32, rows, kD};
          args.ids = {ids.data() + r * kTopk, DType::i32, rows, kTopk};
          args.weights = {weights.data() + r * kTopk, DType::f32, rows, kTopk};
          args.experts = &store;
          args.shared = store.expert(kExperts);
          args.y = {y.data() + r * kD, DType::f32, rows, kD};
          cpu::experts(context, args);
        }
        if (first.empty()) first = y;
        EXPECT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0)
            << "batch " << batch << ", " << threads << " threads, " << to_string(numerics);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryIsa, ::testing::ValuesIn(supported_isas()),
                         [](const auto& test) { return test_name(test.param); });

TEST(TopK, LowerIndexFirstAmongEquals) {
  constexpr float kMinus = -std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {1, kMinus, 3, 3, 0.0f, -0.0f, 3, -2, kMinus};
  const auto select = [&](int k) {
    std::vector<int32_t> out(static_cast<size_t>(k));
    out.resize(
        static_cast<size_t>(cpu::select_top_k(scores.data(), static_cast<int64_t>(scores.size()), k, out.data())));
    return out;
  };
  EXPECT_EQ(select(2), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(select(4), (std::vector<int32_t>{0, 2, 3, 6}));
  EXPECT_EQ(select(5), (std::vector<int32_t>{0, 2, 3, 4, 6}));
  EXPECT_EQ(select(8), (std::vector<int32_t>{0, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(select(20), (std::vector<int32_t>{0, 2, 3, 4, 5, 6, 7}));
}

TEST(TopK, EqualsASort) {
  testing::Random random(kSeed);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> scores(static_cast<size_t>(1 + round * 37));
    for (float& s : scores) s = std::round(static_cast<float>(random.normal() * 20)) / 4;
    const int k = 1 + round * 7;
    std::vector<int32_t> order(scores.size()), out(static_cast<size_t>(k));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(std::min(order.size(), static_cast<size_t>(k)));
    std::sort(order.begin(), order.end());
    out.resize(
        static_cast<size_t>(cpu::select_top_k(scores.data(), static_cast<int64_t>(scores.size()), k, out.data())));
    EXPECT_EQ(out, order);
  }
}

}  // namespace
}  // namespace hadal
