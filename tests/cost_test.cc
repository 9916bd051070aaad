// The operations and bytes of a step of the release against figures that others published or that were worked out by hand.
#include "models/deepseek_v41/cost.h"

#include "golden.h"
#include "ops/cpu/context.h"

namespace hadal {
namespace {

using deepseek_v41::Stage;

class CostOfRelease : public testing::Test {
 protected:
  CostOfRelease()
      : config_(V41Config::load(source_directory() / "configs" / "v41-flash.json")), context_(Numerics::bf16, 1) {}

  // The stages of a step in which each request, at `length` tokens, runs `tokens` more.
  auto cost(int requests, int64_t length, int tokens, PrefillMode mode, bool products8 = false) {
    CacheLayout layout;
    layout.layers = config_.layers();
    layout.window = config_.sliding_window;
    layout.head_dim = config_.head_dim;
    layout.index_dim = config_.index_head_dim;
    for (const int l : config_.kv_source_layer_ids) layout.owners.push_back({l, config_.ratio(l)});
    const auto pages = static_cast<int>((length + tokens) / layout.page_tokens + 1) * requests;
    CachePools pools(context_, layout, requests, pages);
    std::vector<std::unique_ptr<RequestState>> states;
    std::vector<SegmentRequest> segments;
    for (int i = 0; i < requests; ++i) {
      RequestState& state = *states.emplace_back(std::make_unique<RequestState>(pools));
      state.propose(std::vector<int32_t>(static_cast<size_t>(length)));
      state.commit(length);
      if (tokens > 1) state.begin_prompt(length + tokens, mode, config_.sliding_window);
      state.propose(std::vector<int32_t>(static_cast<size_t>(tokens)));
      segments.push_back({&state, LogitsWanted::last});
    }
    context_.reset_step();
    const StepPlan plan(context_, {config_.layers(), config_.sliding_window, config_.first_decoder_layer()}, segments);
    return deepseek_v41::step_cost(config_, plan, {96, 2, products8}, {790e12, 4.3e12, 1450e12});
  }
  static const deepseek_v41::StageCost& of(const std::array<deepseek_v41::StageCost, deepseek_v41::kStages>& stages,
                                           Stage s) {
    return stages[static_cast<size_t>(s)];
  }

  V41Config config_;
  CpuContext context_;
};

// A chunk of 4096 tokens that ends a prompt of 131,072, every row in every layer.
TEST_F(CostOfRelease, Prefill) {
  const auto full = cost(1, 126976, 4096, PrefillMode::full);
  EXPECT_NEAR(of(full, Stage::sparse_attention).sum.flops, 13.19e12, 0.01e12);
  EXPECT_NEAR(of(full, Stage::indexer).sum.flops, 13.0e12, 0.4e12);
  // 35,389,440 weights of an expert, six routed and one shared.
  EXPECT_NEAR(of(full, Stage::experts).sum.flops, 2.0 * 35389440 * 7 * 4096 * 40, 1e6);
  EXPECT_NEAR(of(full, Stage::dense).sum.flops, 2 * 126.6e6 * 4096 * 40, 0.05e12);
  // 106,070 of 163,840 rows, a layer each.
  const auto exact = cost(1, 126976, 4096, PrefillMode::exact);
  EXPECT_NEAR(of(exact, Stage::router).sum.flops / of(full, Stage::router).sum.flops, 106070.0 / 163840, 0.02);
}

// In `fp8` numerics a GPU's linears with quantised weights have the 8-bit rate, and nothing else changes.
TEST_F(CostOfRelease, ProductsOfEightBits) {
  const auto wide = cost(1, 126976, 4096, PrefillMode::full), narrow = cost(1, 126976, 4096, PrefillMode::full, true);
  for (const Stage s : {Stage::dense, Stage::experts}) {
    EXPECT_EQ(of(narrow, s).sum.flops8, of(wide, s).sum.flops);
    EXPECT_EQ(of(narrow, s).sum.bytes, of(wide, s).sum.bytes);
    EXPECT_NEAR(of(narrow, s).seconds, of(wide, s).sum.flops / 1450e12, 1e-4);
  }
  for (const Stage s : {Stage::sparse_attention, Stage::router, Stage::head})
    EXPECT_EQ(of(narrow, s).seconds, of(wide, s).seconds);
}

// 81 hyper-connections read and write four copies of 5,120 values, read an output and write an input. The first finds nothing
// pending and reads the copies alone. In front of the two Engram layers and of the three that are tapped, a call writes what
// is pending, and the next finds nothing.
TEST_F(CostOfRelease, HyperConnections) {
  const double row = 2 * 5120, fn = 4 * 24.0 * 4 * 5120;
  const auto wide = cost(1, 8191, 1, PrefillMode::full), narrow = cost(1, 8191, 1, PrefillMode::full, true);
  const double calls = 75 * (4 + 4 + 2) + (4 + 1) + 5 * (4 + 4 + 1) + 5 * (4 + 1);
  EXPECT_DOUBLE_EQ(of(wide, Stage::hyper_connections).sum.bytes, calls * row + 80 * fn);
  // Of 40 inputs of attention, eight are wanted as they are too, and all as Q4.
  EXPECT_DOUBLE_EQ(of(narrow, Stage::hyper_connections).sum.bytes,
                   (calls - 32 + 40 * (1 + 4.0 / 128) / 2) * row + 80 * fn);
}

// Bytes of a decode step: 18.8 MB an expert, of which 6, 83.8 and 96 of 96 are used.
TEST_F(CostOfRelease, Decode) {
  for (const auto& [requests, experts] : {std::pair{1, 6.0}, {32, 83.8}, {128, 96.0}}) {
    const auto stages = cost(requests, 8191, 1, PrefillMode::full);
    EXPECT_NEAR(of(stages, Stage::experts).sum.bytes / 40, experts * 18.80e6 + 35.4e6 + requests * 20480, 0.01e9);
    EXPECT_NEAR(of(stages, Stage::head).sum.bytes, 1.3238e9 + requests * 527360.0, 1e6);
  }
}

}  // namespace
}  // namespace hadal
