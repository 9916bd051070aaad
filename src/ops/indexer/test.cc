#include "ops/indexer/cases.h"
#include "ops/indexer/reference.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(Indexer, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::indexer_cases); }

TEST(IndexerReference, SelectsLargestLowerFirst) {
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {1, 3, none, 3, 2, 3, 0, -1};
  EXPECT_EQ(reference::select_largest(scores, 2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(reference::select_largest(scores, 4), (std::vector<int32_t>{1, 3, 4, 5}));
  EXPECT_EQ(reference::select_largest(scores, 50), (std::vector<int32_t>{0, 1, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(reference::select_largest({none, none}, 3).empty());
}

TEST(IndexerReference, VisibleGroups) {
  EXPECT_EQ(reference::visible_groups(0, 1), 1);  // a token sees its own entry
  EXPECT_EQ(reference::visible_groups(0, 2), 0);
  EXPECT_EQ(reference::visible_groups(1, 2), 1);
  EXPECT_EQ(reference::visible_groups(2, 2), 1);
}

// Two heads, relu on each, weights of both signs; `official` rounds product, multiple and sum.
TEST(IndexerReference, Score) {
  IndexerArgs args;
  args.heads = 2;
  args.index_dim = 32;
  std::vector<float> query(64), key(32);
  query[0] = 3;
  query[1] = 0.5f;
  query[32] = -2;
  query[33] = 1;
  key[0] = 1.5f;
  key[1] = 0.0625f;
  const float weights[] = {0.7f, -0.3f};
  const auto score = [&](Numerics numerics) {
    return reference::index_score(numerics, args, query.data(), weights, key.data());
  };
  EXPECT_FLOAT_EQ(score(Numerics::fp32), 0.7f * 4.53125f);  // the second head's product is negative
  EXPECT_FLOAT_EQ(score(Numerics::bf16), 0.7f * 4.53125f);
  EXPECT_EQ(score(Numerics::official), round_bf16(0.7f * 4.53125f));  // 4.53125 is a bf16 number
  query[32] = 2;                                                      // 3.0625
  EXPECT_FLOAT_EQ(score(Numerics::fp32), 0.7f * 4.53125f - 0.3f * 3.0625f);
  EXPECT_EQ(score(Numerics::official), round_bf16(round_bf16(0.7f * 4.53125f) + round_bf16(-0.3f * 3.0625f)));
}

// One head, keys along one channel: the score of group g is value[g]. Ratio 1, position 6, blocks of 2.
struct Blocks {
  std::vector<int32_t> selected, blocks;
  int32_t count = 0, block_count = 0;
};

Blocks index_blocks(const std::vector<float>& value, CandidateUse use, int topk, int topk_blocks,
                    const std::vector<int32_t>& candidates = {}) {
  const int entries = static_cast<int>(value.size());
  HostContext context(Numerics::fp32);
  Backend backend(reference_operators(), context);
  testing::Random random(4);
  const testing::HostStep host = testing::make_step(random, {{entries - 1, 1}}, 4);
  const testing::DeviceStep step(backend, host);
  const auto bytes = static_cast<int>(row_bytes(RowFormat::fp4_ue8m0_32, 32));
  std::vector<uint8_t> keys(host.pages * 4 * bytes);
  for (int g = 0; g < entries; ++g) {
    std::vector<float> key(32);
    key[0] = value[g];
    pack_row(RowFormat::fp4_ue8m0_32, key.data(), 32, keys.data() + host.physical(0, 1, g) * bytes);
  }
  std::vector<float> wq(32 * 32), proj(32), x(32), qr(32);
  wq[0] = 1;
  qr[0] = 1;
  proj[0] = 1;
  x[0] = 1;
  const std::vector<float> inv_freq(8, 0.1f);

  IndexerArgs args;
  args.rows = &step.all;
  args.segments = &step.segments;
  args.qr = backend.activations(qr, 1, 32);
  args.x = backend.activations(x, 1, 32);
  args.heads = 1;
  args.index_dim = 32;
  args.topk = topk;
  args.rope = {inv_freq.data(), 16};
  args.wq_b = backend.weight(testing::f32_weight(wq, 32, 32));
  args.weights_proj = backend.weight(testing::f32_weight(proj, 1, 32));
  args.keys = {keys.data(), bytes, 4};
  args.use = use;
  args.candidate_topk_blocks = topk_blocks;
  args.candidate_block_size = 2;
  args.candidates = {backend.output(1, topk_blocks, DType::i32), backend.output(1, 1, DType::i32)};
  if (use == CandidateUse::filter) {
    std::copy(candidates.begin(), candidates.end(), args.candidates.blocks.i32());
    *args.candidates.count.i32() = static_cast<int32_t>(candidates.size());
  }
  args.selection = {backend.output(1, topk, DType::i32), backend.output(1, 1, DType::i32)};
  reference::indexer(context, args);

  Blocks out;
  out.count = *args.selection.count.i32();
  out.block_count = *args.candidates.count.i32();
  for (int i = 0; i < topk; ++i) {
    const int32_t physical = args.selection.rows.i32()[i];
    int32_t group = physical < 0 ? -1 : 0;
    while (group >= 0 && host.physical(0, 1, group) != physical) ++group;
    out.selected.push_back(group);
  }
  out.blocks.assign(args.candidates.blocks.i32(), args.candidates.blocks.i32() + topk_blocks);
  return out;
}

TEST(IndexerReference, CandidateBlocks) {
  // Block maxima 1, 6, 4, and the newest block: weak, and chosen all the same.
  const std::vector<float> value = {1, 0.5f, 6, 1, 4, 3, 0};
  const Blocks b = index_blocks(value, CandidateUse::publish, 3, 2);
  EXPECT_EQ(b.selected, (std::vector<int32_t>{2, 4, 5}));  // the publisher's own selection is not restricted
  EXPECT_EQ(b.block_count, 2);
  EXPECT_EQ(b.blocks, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(index_blocks(value, CandidateUse::publish, 3, 4).block_count, -1);  // all four blocks

  const Blocks f = index_blocks(value, CandidateUse::filter, 4, 2, {0, 3});
  EXPECT_EQ(f.count, 3);  // groups 0, 1 and 6 are all that there is
  EXPECT_EQ(f.selected, (std::vector<int32_t>{0, 1, 6, -1}));
}

TEST(IndexerReference, TiesOfBlocksAndEntries) {
  const Blocks b = index_blocks({2, 2, 2, 2, 2, 2, 2, 2, 2}, CandidateUse::publish, 4, 3);
  EXPECT_EQ(b.selected, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(b.blocks, (std::vector<int32_t>{0, 1, 4}));
}

}  // namespace
}  // namespace hadal
