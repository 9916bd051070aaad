// Priorities: who gives way, to whom, and that nobody's tokens change by it.
#include <deque>
#include <thread>

#include "engine_support.h"

namespace hadal {
namespace {

TEST(Preemption, AHigherPriorityTakesThePlace) {
  std::vector<Request> low = some_requests("v41-a", 6), high = some_requests("v41-a", 8);
  for (Request& r : low) r.max_tokens = 250;
  for (Request& r : high) r.priority = 1;
  const std::vector<Answer> low_alone = run_alone(options_for("v41-a"), low),
                            high_alone = run_alone(options_for("v41-a"), high);
  for (const bool prefix_cache : {true, false})
    for (const char* prefill : {"exact", "full"})
      for (const bool slots : {true, false}) {  // what is short
        EngineOptions o = options_for("v41-a");
        o.prefix_cache = prefix_cache;
        o.prefill = prefill;
        o.step_tokens = 32;
        o.speculate = 2;
        o.max_requests = slots ? 2 : 16;
        o.cache_tokens = slots ? 8192 : 512;
        if (!slots) o.max_requests = 4;
        Engine engine(o);
        std::vector<std::unique_ptr<Collector>> collectors;
        const auto submit = [&](const Request& r, Gate* gate = nullptr) {
          EventHandler handler = collectors.emplace_back(std::make_unique<Collector>())->handler();
          engine.submit(r, gate != nullptr ? gate->handler(std::move(handler)) : std::move(handler));
        };
        Gate gate(10);
        for (const Request& r : low) submit(r, &r == low.data() ? &gate : nullptr);
        gate.wait_until_reached();
        for (size_t i = 0; i < high.size(); ++i) {
          submit(high[i]);
          // The first half comes at once, the others some steps apart.
          if (i + 1 == high.size() / 2) gate.open();
          const int64_t steps = engine.stats().steps;
          while (i >= high.size() / 2 && engine.stats().running > 0 && engine.stats().steps < steps + 5)
            std::this_thread::yield();
        }
        for (size_t i = 0; i < collectors.size(); ++i) {
          const Answer& want = i < low.size() ? low_alone[i] : high_alone[i - low.size()];
          ASSERT_EQ(collectors[i]->wait(), want)
              << i << " " << prefill << ", cache " << prefix_cache << ", slots " << slots;
        }
        EXPECT_GT(engine.stats().preemptions, 0) << prefill << ", cache " << prefix_cache << ", slots " << slots;
        expect_all_given_back(engine);
      }
}

// A bounded prompt's cut belongs to the request: what was preempted goes on with it.
TEST(Preemption, BoundedPromptsKeepTheirCut) {
  EngineOptions o = options_for("v41-a");
  o.prefill = "bounded";
  std::vector<Request> low = some_requests("v41-a", 4), high = some_requests("v41-a", 6);
  for (Request& r : low) r.max_tokens = 200;
  for (Request& r : high) r.priority = 3;
  const std::vector<Answer> alone = run_alone(o, low);
  for (const int64_t mib : {512, 0}) {  // resumed from a snapshot, or run again
    o.prefix_cache_mib = mib;
    o.max_requests = 1;
    Engine engine(o);
    std::vector<std::unique_ptr<Collector>> collectors;
    std::deque<Gate> gates;
    for (const Request& r : low) {
      collectors.push_back(std::make_unique<Collector>());
      engine.submit(r, gates.emplace_back(1 + 45 * gates.size()).handler(collectors.back()->handler()));
    }
    for (size_t i = 0; i < high.size(); ++i) {
      Collector collector;
      if (i < gates.size()) gates[i].wait_until_reached();
      engine.submit(high[i], collector.handler());
      if (i < gates.size()) gates[i].open();
      collector.wait();
    }
    for (size_t i = 0; i < low.size(); ++i) ASSERT_EQ(collectors[i]->wait(), alone[i]) << i << ", " << mib << " MiB";
    EXPECT_GE(engine.stats().preemptions, std::ssize(low));
    expect_all_given_back(engine);
  }
}

TEST(Preemption, EqualsDoNotGiveWay) {
  EngineOptions o = options_for("v41-a");
  o.max_requests = 1;
  Engine engine(o);
  std::vector<Request> requests = some_requests("v41-a", 5);
  for (Request& r : requests) r.priority = 7;
  run_all(engine, requests);
  EXPECT_EQ(engine.stats().preemptions, 0);
}

// The window is long; only a request in a hurry explains an early answer, and only waiting explains that two ran together.
TEST(Preemption, AnIdleEngineWaitsForCompanyButNotInAHurry) {
  EngineOptions o = options_for("v41-a");
  o.batch_window_ms = 10000;
  Engine engine(o);
  Request r = some_requests("v41-a", 1).front();
  r.max_tokens = 4;
  Collector first;
  engine.submit(r, first.handler());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(engine.stats().steps, 0);
  r.priority = 1;
  const auto start = std::chrono::steady_clock::now();
  run_all(engine, {r});
  first.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(9));
  // Cancelling and stopping do not wait either.
  r.priority = 0;
  Collector last;
  const auto again = std::chrono::steady_clock::now();
  const RequestId id = engine.submit(r, last.handler());
  engine.cancel(id);
  EXPECT_EQ(last.wait().reason, FinishReason::cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - again, std::chrono::seconds(9));
}

}  // namespace
}  // namespace hadal
