// What an engine promises under load: a long prompt does not hold up those that decode, and memory stays what was planned.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "engine/memory_plan.h"
#include "engine_support.h"

namespace hadal {
namespace {

// A prompt of 32k tokens arrives while others decode: each of them gets a token in every step, and no step runs more of the
// prompt than one chunk. So nobody waits longer for a token than one chunk takes.
TEST(EngineLoad, ALongPromptYieldsToDecoding) {
  for (const int priority : {0, 1}) {
    EngineOptions o = options_for("v41-a");
    o.max_requests = 4;
    o.step_tokens = 512;
    o.cache_tokens = 40000;
    Engine engine(o);
    struct Moment {
      int64_t steps = 0, prompt_tokens = 0;
    };
    std::vector<std::vector<Moment>> moments(3);
    std::vector<std::unique_ptr<Collector>> collectors;
    std::vector<RequestId> running;
    std::atomic<int> decoding{0};
    for (size_t i = 0; i < moments.size(); ++i) {
      Request r = some_requests("v41-a", 3)[i];
      r.max_tokens = 1500;
      collectors.push_back(std::make_unique<Collector>());
      running.push_back(engine.submit(r, [&, i, handler = collectors.back()->handler()](const Event& e) {
        if (!e.tokens.empty()) {
          const EngineStats s = engine.stats();
          if (moments[i].empty()) ++decoding;
          moments[i].push_back({s.steps, s.prompt_tokens});
        }
        handler(e);
      }));
    }
    while (decoding < 3) std::this_thread::yield();
    const int64_t before = engine.stats().prompt_tokens;
    Request large;
    const std::vector<int32_t> ids = golden_ids("v41-a");
    while (large.prompt.size() < 32768) large.prompt.push_back(ids[large.prompt.size() * 7 % ids.size()]);
    large.max_tokens = 1;
    large.priority = priority;
    run_all(engine, {large});
    for (const RequestId id : running) engine.cancel(id);
    for (const auto& c : collectors) c->wait();
    EXPECT_EQ(engine.stats().prompt_tokens - before, 32768);
    for (const auto& m : moments) {
      int64_t beside = 0;  // of the prompt, while this one decoded
      for (size_t i = 1; i < m.size(); ++i) {
        ASSERT_EQ(m[i].steps, m[i - 1].steps + 1) << "a token in every step";
        const int64_t chunk = m[i].prompt_tokens - m[i - 1].prompt_tokens;
        ASSERT_LE(chunk, 512);
        beside += chunk;
      }
      EXPECT_GE(beside, 32768) << "it decoded all the time";
    }
  }
}

CacheLayout some_layout() {
  CacheLayout l;
  l.layers = 40;
  l.draft_stages = 3;
  l.window = 128;
  l.head_dim = 512;
  l.index_dim = 128;
  l.owners = {{2, 1}, {8, 2}, {14, 2}, {20, 2}};
  return l;
}

TEST(MemoryPlan, FitsWhatIsFree) {
  const CacheLayout layout = some_layout();
  EngineOptions o;
  o.max_requests = 8;
  const int64_t page = layout.bytes_per_page();
  const auto total = [](const MemoryPlan& p) { return p.cache + p.windows + p.snapshots; };
  const MemoryPlan plenty = plan_memory(layout, o, int64_t{1} << 40, 0);
  EXPECT_EQ(plenty.cache_tokens, 8 * 4096 + 8 * 128) << "as many as are useful";
  EXPECT_EQ(plenty.cache, plenty.cache_tokens / 128 * page);
  EXPECT_EQ(plenty.windows, 8 * layout.bytes_per_slot());
  EXPECT_EQ(plenty.snapshots, int64_t{512} << 20);
  int64_t last = 0;
  for (int64_t free = int64_t{570} << 20; free < int64_t{800} << 20; free += 7 << 20) {
    MemoryPlan plan;
    try {
      plan = plan_memory(layout, o, free, 0);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::out_of_memory);
      EXPECT_EQ(last, 0) << "less memory had been enough";
      continue;
    }
    EXPECT_LE(total(plan), free);
    EXPECT_GE(plan.cache_tokens, 2 * 8 * 128);
    EXPECT_GE(plan.cache_tokens, last);
    last = plan.cache_tokens;
  }
  EXPECT_GT(last, 0);
  // Weights that are read in place stay in memory as long as they leave anything.
  EXPECT_LE(total(plan_memory(layout, o, int64_t{4} << 30, int64_t{3} << 30)), int64_t{1} << 30);
  EXPECT_GT(plan_memory(layout, o, int64_t{4} << 30, int64_t{500} << 30).cache_tokens, 0);
  // What was asked for is given, or refused with the numbers.
  o.cache_tokens = 100000;
  EXPECT_GE(plan_memory(layout, o, int64_t{1} << 30, 0).cache_tokens, 100000);
  try {
    plan_memory(layout, o, int64_t{100} << 20, 0);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::out_of_memory);
    EXPECT_NE(std::string(e.what()).find("104.9 MB are free"), std::string::npos) << e.what();
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t anonymous_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "RssAnon:") {
      int64_t kb = 0;
      status >> kb;
      return kb * 1024;
    }
  return 0;
}

// Its peak, from a thread that looks again and again.
class Peak {
 public:
  Peak()
      : thread_([this] {
          while (!stop_) {
            most_ = std::max<int64_t>(most_, anonymous_memory());
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  ~Peak() {
    stop_ = true;
    thread_.join();
  }
  int64_t bytes() const { return most_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> most_{0};
  std::thread thread_;
};

TEST(MemoryPlan, IsNotExceeded) {
  EngineOptions o = options_for("v41-c");
  o.max_requests = 8;
  o.cache_tokens = 8000;
  o.prefix_cache_mib = 8;
  o.step_tokens = 256;
  o.speculate = 3;
  const int64_t before = anonymous_memory();
  Engine engine(o);
  const MemoryPlan& plan = engine.memory_plan();
  const int64_t planned = plan.cache + plan.windows + plan.snapshots;
  const std::vector<int32_t> ids = golden_ids("v41-c");
  const auto pass = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Request> requests;
    for (int i = 0; i < 40; ++i) {
      Request r;
      for (size_t n = 1 + random() % 600; n > 0; --n) r.prompt.push_back(ids[random() % ids.size()]);
      r.max_tokens = 1 + random() % 8;
      r.ignore_eos = true;
      r.n = 1 + static_cast<int>(random() % 3);
      r.priority = static_cast<int>(random() % 2);
      requests.push_back(r);
    }
    const Peak peak;
    run_all(engine, requests);
    return peak.bytes();
  };
  const int64_t first = pass(1);
  // Step memory (which comes in pieces of 2 MB that double), requests and what the tests keep themselves.
  constexpr int64_t kBeside = 64 << 20;
  EXPECT_LE(first - before, planned + kBeside) << to_string(plan);
  EXPECT_GT(engine.stats().evictions, 0) << "the plan was filled";
  EXPECT_LE(engine.stats().snapshot_bytes, plan.snapshots);
  EXPECT_LE(pass(2), first + (4 << 20)) << "nothing grows while it serves";
}
#endif

}  // namespace
}  // namespace hadal
