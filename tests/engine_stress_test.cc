// Ten thousand requests, many of them cancelled wherever they are: nothing hangs, and every page and slot comes back.
#include <atomic>
#include <thread>

#include "engine_support.h"

namespace hadal {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRequests = 500;  // a step takes ten times as long; --gtest_repeat for more
#else
constexpr int kRequests = 10000;
#endif

TEST(EngineStress, RandomCancellationGivesEverythingBack) {
  EngineOptions o = options_for("v41-c");
  o.max_requests = 6;
  o.max_waiting = 200;
  o.step_tokens = 48;
  o.cache_tokens = 1500;
  o.speculate = 2;
  Engine engine(o);
  const std::vector<int32_t> ids = golden_ids("v41-c");

  std::atomic<int> left{0}, answered{0}, cancelled{0}, expired{0}, refused{0};
  const auto client = [&](unsigned seed, int requests) {
    std::mt19937 random(seed);
    std::vector<RequestId> mine;
    for (int i = 0; i < requests; ++i) {
      Request r;
      const size_t n = 1 + random() % 60;
      // Few beginnings, so that the prefix cache has something to do.
      r.prompt.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
      if (random() % 2 == 0) r.prompt.back() = static_cast<int32_t>(random() % 256);
      r.max_tokens = 1 + static_cast<int64_t>(random() % 6);
      r.priority = random() % 8 == 0 ? 1 : 0;
      r.n = random() % 16 == 0 ? 3 : 1;
      r.sampling.seed = random();
      if (random() % 50 == 0) r.deadline_seconds = 1e-4 * static_cast<double>(1 + random() % 100);
      left += r.n;
      try {
        // Some cancel their own request from the handler, in the middle of an event.
        const bool rash = random() % 20 == 0;
        mine.push_back(engine.submit(r, [&, rash](const Event& e) {
          if (rash && !e.finished) engine.cancel(e.request);
          if (!e.finished) return;
          (e.reason == FinishReason::cancelled ? cancelled : e.reason == FinishReason::deadline ? expired : answered)++;
          EXPECT_NE(e.reason, FinishReason::error) << e.error;
          --left;
        }));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::busy) << error.what();
        left -= r.n;
        ++refused;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        --i;
        continue;
      }
      if (random() % 3 == 0) {
        if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        engine.cancel(mine[mine.size() - 1 - random() % std::min<size_t>(mine.size(), 20)]);
      }
    }
  };
  // With --gtest_shuffle --gtest_repeat=N every repetition sends others.
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed());
  std::thread other(client, 2 * seed + 1, kRequests / 2);
  client(2 * seed + 2, kRequests / 2);
  other.join();
  for (int waited = 0; left > 0; ++waited) {
    ASSERT_LT(waited, 3000) << left << " samples hang";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  expect_all_given_back(engine);
  EXPECT_GT(answered, kRequests / 4);
  EXPECT_GT(cancelled, kRequests / 20);
  EXPECT_GT(expired, 0);
  const EngineStats stats = engine.stats();
  EXPECT_GT(stats.prefix_hits, 0);
  EXPECT_GT(stats.evictions, 0);
  RecordProperty("answered", answered.load());
  RecordProperty("cancelled", cancelled.load());
  RecordProperty("refused", refused.load());
  RecordProperty("preemptions", static_cast<int>(stats.preemptions));
}

}  // namespace
}  // namespace hadal
