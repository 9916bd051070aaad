#include "ops/sparse_attention/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;
using testing::StepSegment;

TEST(SparseAttention, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::sparse_attention_cases); }

constexpr int kDim = 32;

// Attention with one head whose query is zero: every key weighs 1 and the sink exp(sink). Channel 0 of the key at position
// p is 2^-(p % 8) and of entry g it is -6 * 2^-(g % 8) (exact in both
// cache formats), so the output names the set of keys.
struct Uniform {
  std::vector<StepSegment> segments;
  int window = 8, in_rows = -1;
  bool bidirectional = false;
  std::vector<int32_t> floor = {};
  std::vector<std::vector<int32_t>> groups = {};  // by step row, ratio 1
  float sink = 0;

  static std::vector<float> latent(double first) {
    std::vector<float> x(kDim);
    x[0] = static_cast<float>(first);
    return x;
  }

  // Channel 0 of every output row.
  std::vector<float> run(Numerics numerics = Numerics::fp32) const {
    HostContext context(numerics);
    Backend backend(reference_operators(), context);
    testing::Random random(1);
    const testing::HostStep host = testing::make_step(random, segments);
    const testing::DeviceStep step(backend, host);
    constexpr RowFormat kRing = RowFormat::fp8_ue8m0_32, kEntry = RowFormat::fp4_e4m3_16;
    const auto bytes = static_cast<int>(row_bytes(kRing, kDim)),
               entry_bytes = static_cast<int>(row_bytes(kEntry, kDim));

    std::vector<uint8_t> rows(host.all.rows() * bytes), ring(host.slots * window * bytes, 0xff);
    for (int r = 0; r < host.all.rows(); ++r)
      pack_row(kRing, latent(std::exp2(-(host.all.position[r] % 8))).data(), kDim, rows.data() + r * bytes);
    for (size_t s = 0; s < segments.size(); ++s)
      for (int p = std::max(0, host.first[s] - window); p < host.first[s]; ++p)
        pack_row(kRing, latent(std::exp2(-(p % 8))).data(), kDim,
                 ring.data() + (host.slot[s] * window + p % window) * bytes);

    SparseAttentionArgs args;
    args.in = &step.all;
    args.out = &step.kept;
    args.segments = &step.segments;
    args.heads = 1;
    args.head_dim = kDim;
    args.scale = 1;
    const std::vector<float> inv_freq(8, 0.5f), sinks = {sink};
    args.rope = {inv_freq.data(), 16};
    args.sink = sinks.data();
    args.q = backend.activations(std::vector<float>(host.kept.rows() * kDim), host.kept.rows(), kDim);
    args.latent = backend.u8(rows, host.all.rows(), bytes);
    args.ring = {ring.data(), bytes, window};
    args.bidirectional = bidirectional;
    if (!floor.empty()) args.floor = floor.data();
    args.o = backend.output_activations(host.kept.rows(), kDim);

    PagedRows entries;
    Selection selection;
    std::vector<uint8_t> pool(host.pages * host.page_tokens * entry_bytes, 0xff);
    if (!groups.empty()) {
      std::vector<int32_t> list(groups.size() * 8, -1), count;
      for (size_t r = 0; r < groups.size(); ++r) {
        count.push_back(static_cast<int32_t>(groups[r].size()));
        for (size_t i = 0; i < groups[r].size(); ++i) {
          const int64_t at = host.physical(host.all.segment[r], 1, groups[r][i]);
          list[r * 8 + i] = static_cast<int32_t>(at);
          pack_row(kEntry, latent(-6 * std::exp2(-(groups[r][i] % 8))).data(), kDim, pool.data() + at * entry_bytes);
        }
      }
      const auto step_rows = static_cast<int64_t>(groups.size());
      entries = {pool.data(), entry_bytes, host.page_tokens};
      selection = {backend.i32(list, step_rows, 8), backend.i32(count, step_rows, 1)};
      args.entries = &entries;
      args.selection = &selection;
    }
    reference::sparse_attention(context, args);
    std::vector<float> out;
    for (int r = 0; r < host.kept.rows(); ++r) out.push_back(args.o.f32(r)[0]);
    return out;
  }
};

// (sum of the keys' first channels) / (number of keys + exp(sink))
double mean_of(const std::vector<int>& positions, const std::vector<int>& groups = {}, double sink = 1) {
  double sum = 0;
  for (const int p : positions) sum += std::exp2(-(p % 8));
  for (const int g : groups) sum -= 6 * std::exp2(-(g % 8));
  return sum / (static_cast<double>(positions.size() + groups.size()) + sink);
}

TEST(SparseAttentionReference, WindowIncludesTheTokenItself) {
  const std::vector<float> o = Uniform{.segments = {{0, 10}}}.run();
  EXPECT_NEAR(o[0], mean_of({0}), 1e-7);
  EXPECT_NEAR(o[7], mean_of({0, 1, 2, 3, 4, 5, 6, 7}), 1e-7);
  EXPECT_NEAR(o[9], mean_of({2, 3, 4, 5, 6, 7, 8, 9}), 1e-7);
}

TEST(SparseAttentionReference, RingAndStepRowsJoin) {
  const std::vector<float> o = Uniform{.segments = {{13, 3, 2}, {2, 1}}, .window = 5}.run();
  ASSERT_EQ(o.size(), 3u);
  EXPECT_NEAR(o[0], mean_of({10, 11, 12, 13, 14}), 1e-7);
  EXPECT_NEAR(o[1], mean_of({11, 12, 13, 14, 15}), 1e-7);
  EXPECT_NEAR(o[2], mean_of({0, 1, 2}), 1e-7);
}

TEST(SparseAttentionReference, FloorCutsTheWindow) {
  const std::vector<float> o = Uniform{.segments = {{13, 2}}, .window = 5, .floor = {12}}.run();
  EXPECT_NEAR(o[0], mean_of({12, 13}), 1e-7);
  EXPECT_NEAR(o[1], mean_of({12, 13, 14}), 1e-7);
}

// All filled slots and all draft rows for every draft row: no window mask, no causality (spec 5.2, 10.9).
TEST(SparseAttentionReference, DraftRowsSeeEachOtherAndTheWholeRing) {
  const std::vector<float> o = Uniform{.segments = {{13, 3}, {2, 2}}, .window = 5, .bidirectional = true}.run();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(o[i], mean_of({8, 9, 10, 11, 12, 13, 14, 15}), 1e-7);
  for (int i = 3; i < 5; ++i) EXPECT_NEAR(o[i], mean_of({0, 1, 2, 3}), 1e-7);
}

TEST(SparseAttentionReference, EntriesJoinTheWindowAndMayRepeatIt) {
  const std::vector<float> o = Uniform{.segments = {{9, 2}}, .window = 3, .groups = {{0, 4, 9}, {}}}.run();
  EXPECT_NEAR(o[0], mean_of({7, 8, 9}, {0, 4, 9}), 1e-7);
  EXPECT_NEAR(o[1], mean_of({8, 9, 10}), 1e-7);
}

TEST(SparseAttentionReference, SinkIsInTheDenominatorOnly) {
  for (const float sink : {-50.0f, 2.0f, 30.0f}) {
    const std::vector<float> o = Uniform{.segments = {{1, 1}}, .sink = sink}.run();
    const double want = mean_of({0, 1}, {}, std::exp(static_cast<double>(sink)));
    EXPECT_NEAR(o[0], want, 1e-6 * want);
  }
}

// One key: its weight is 1, so the output is the key, with its rotated channels turned back at the query's position.
TEST(SparseAttentionReference, OutputIsRotatedBack) {
  HostContext context(Numerics::fp32);
  Backend backend(reference_operators(), context);
  testing::Random random(2);
  const testing::HostStep host = testing::make_step(random, {{0, 6, 1}});
  const testing::DeviceStep step(backend, host);
  const int bytes = static_cast<int>(row_bytes(RowFormat::fp8_ue8m0_32, kDim));
  std::vector<float> key(kDim, 0.25f);
  key[28] = 1;
  key[29] = 2;
  std::vector<uint8_t> rows(6 * bytes, 0xff);
  pack_row(RowFormat::fp8_ue8m0_32, key.data(), kDim, rows.data() + 5 * bytes);
  const std::vector<float> inv_freq = {0.3f, 0.01f}, sink = {-200};
  SparseAttentionArgs args;
  args.in = &step.all;
  args.out = &step.kept;
  args.segments = &step.segments;
  args.heads = 1;
  args.head_dim = kDim;
  args.scale = 0.5f;
  args.rope = {inv_freq.data(), 4};
  args.sink = sink.data();
  args.q = backend.activations(std::vector<float>(kDim, 1.5f), 1, kDim);
  args.latent = backend.u8(rows, 6, bytes);
  args.ring = {nullptr, bytes, 1};
  args.o = backend.output_activations(1, kDim);
  reference::sparse_attention(context, args);
  EXPECT_EQ(args.o.f32()[0], 0.25f);
  const double angle = 5 * static_cast<double>(0.3f);
  EXPECT_NEAR(args.o.f32()[28], std::cos(angle) + 2 * std::sin(angle), 1e-6);
  EXPECT_NEAR(args.o.f32()[29], 2 * std::cos(angle) - std::sin(angle), 1e-6);
}

}  // namespace
}  // namespace hadal
