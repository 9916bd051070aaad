#include "ops/cache_commit/cases.h"
#include "ops/testing/gtest_cases.h"
#include "ops/testing/host_context.h"

namespace hadal {
namespace {

using testing::Backend;
using testing::HostContext;

TEST(CacheCommit, CpuMatchesReference) { testing::expect_cpu_matches_reference(testing::cache_commit_cases); }

// Rows and slots are told apart by their bytes: a row holds its position + 1, an untouched slot 0.
struct Committed {
  std::vector<int> ring;  // by slot of the request
  float pending = 0;
};

Committed commit(int first, int count, int kept, int accepted, int window) {
  HostContext context(Numerics::bf16);
  Backend backend(reference_operators(), context);
  testing::Random random(6);
  const testing::HostStep host = testing::make_step(random, {{first, count, kept}});
  const testing::DeviceStep step(backend, host);
  const int bytes = static_cast<int>(row_bytes(RowFormat::fp8_ue8m0_32, 32));
  std::vector<uint8_t> latent, ring(host.slots * window * bytes);
  std::vector<float> ab, pending(host.slots * 64);
  for (const int32_t p : host.kept.position) {
    latent.insert(latent.end(), bytes, static_cast<uint8_t>(p + 1));
    ab.insert(ab.end(), 64, static_cast<float>(p + 1));
  }
  const CommittedLayer layer{&step.kept,
                             backend.u8(latent, host.kept.rows(), bytes),
                             {ring.data(), bytes, window},
                             backend.f32(ab, host.kept.rows(), 64),
                             pending.data()};
  reference::cache_commit(context, {&step.segments, &accepted, {&layer, 1}});

  Committed out;
  int touched = 0;
  for (int s = 0; s < window; ++s) out.ring.push_back(ring[(host.slot[0] * window + s) * bytes]);
  for (size_t i = 0; i < ring.size(); i += bytes) touched += ring[i] != 0;
  for (const int v : out.ring) touched -= v != 0;
  EXPECT_EQ(touched, 0) << "another request's ring was written";
  out.pending = pending[host.slot[0] * 64 + 63];
  return out;
}

TEST(CacheCommitReference, LastAcceptedPositionsWin) {
  const Committed all = commit(0, 10, 10, 10, 4);
  EXPECT_EQ(all.ring, (std::vector<int>{9, 10, 7, 8}));
  EXPECT_EQ(all.pending, 0.0f);  // even length
  const Committed some = commit(5, 6, 6, 2, 4);
  EXPECT_EQ(some.ring, (std::vector<int>{0, 6, 7, 0}));  // positions 5 and 6; the older ones stay
  EXPECT_EQ(some.pending, 7.0f);                         // length 7: the first half of group 3
  const Committed none = commit(5, 6, 6, 0, 4);
  EXPECT_EQ(none.ring, (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(none.pending, 0.0f);  // length 5 is odd, but nothing new was accepted
  EXPECT_EQ(commit(0, 10, 2, 10, 4).ring, (std::vector<int>{9, 10, 0, 0}));  // `in` has two rows only
}

}  // namespace
}  // namespace hadal
