// The engine: every request's tokens and log-probabilities are the same alone and in any company, with and without drafts.
#include "hadal/engine.h"

#include <future>
#include <random>

#include "golden.h"

namespace hadal {
namespace {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::error;
  Usage usage;
  std::string error;
  bool operator==(const Answer& o) const { return tokens == o.tokens && logprobs == o.logprobs && reason == o.reason; }
};

// Collects events until the last. The handler shares what it writes: it may still be leaving when the waiter goes on.
class Collector {
 public:
  EventHandler handler() {
    return [shared = shared_](const Event& e) {
      for (const GeneratedToken& t : e.tokens) {
        shared->answer.tokens.push_back(t.token);
        shared->answer.logprobs.push_back(t.logprob);
      }
      if (!e.finished) return;
      shared->answer.reason = e.reason;
      shared->answer.usage = e.usage;
      shared->answer.error = e.error;
      shared->done.set_value();
    };
  }
  const Answer& wait() {
    if (shared_->done.get_future().wait_for(std::chrono::seconds(300)) != std::future_status::ready)
      throw std::runtime_error("the request hangs");
    return shared_->answer;
  }

 private:
  struct Shared {
    Answer answer;
    std::promise<void> done;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

EngineOptions options_for(const std::string& set) {
  EngineOptions o;
  o.model = golden_directory(set);
  o.threads = 1;  // the number of threads changes nothing (equality_test.cc); one does not wait for a busy machine
  return o;
}

std::vector<Request> some_requests(const std::string& set, int count) {
  const std::vector<int32_t> ids = GoldenFile(golden_directory(set) / "logits.safetensors").i32("n300.ids");
  std::mt19937 random(5);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request r;
    const auto n = static_cast<size_t>(1 + random() % 150);
    const auto begin = static_cast<std::ptrdiff_t>(random() % (300 - n));
    r.prompt.assign(ids.begin() + begin, ids.begin() + begin + static_cast<std::ptrdiff_t>(n));
    r.max_tokens = 1 + static_cast<int64_t>(random() % 24);
    r.logprobs = 0;
    r.ignore_eos = true;
    r.sampling.seed = random();
    r.sampling.temperature = i % 3 == 0 ? 0.0 : 0.8;
    if (i % 4 == 1) r.sampling.top_k = 20;
    if (i % 4 == 2) r.sampling.top_p = 0.9;
    if (i % 5 == 3) {
      r.sampling.repetition_penalty = 1.2;
      r.sampling.frequency_penalty = 0.3;
    }
    requests.push_back(r);
  }
  return requests;
}

std::vector<Answer> run_all(Engine& engine, const std::vector<Request>& requests) {
  std::vector<std::unique_ptr<Collector>> collectors;
  for (const Request& r : requests) {
    collectors.push_back(std::make_unique<Collector>());
    engine.submit(r, collectors.back()->handler());
  }
  std::vector<Answer> answers;
  for (auto& c : collectors) answers.push_back(c->wait());
  return answers;
}

TEST(Engine, SameTokensInAnyCompany) {
  const std::vector<Request> requests = some_requests("v41-a", 12);
  std::vector<Answer> alone;
  {
    EngineOptions o = options_for("v41-a");
    o.max_requests = 1;
    Engine engine(o);
    for (const Request& r : requests) alone.push_back(run_all(engine, {r}).front());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(alone[i].tokens.size(), static_cast<size_t>(requests[i].max_tokens));
    EXPECT_EQ(alone[i].reason, FinishReason::length);
  }
  for (const int most : {2, 12})
    for (const int step_tokens : {1, 7, 64, 1000})
      for (const int speculate : {0, 1, 3, 5, -1}) {
        EngineOptions o = options_for("v41-a");
        o.max_requests = most;
        o.step_tokens = step_tokens;
        o.speculate = speculate;
        Engine engine(o);
        const std::vector<Answer> together = run_all(engine, requests);
        for (size_t i = 0; i < requests.size(); ++i)
          ASSERT_TRUE(together[i] == alone[i]) << "request " << i << ", " << most << " at once, " << step_tokens
                                               << " rows a step, drafts " << speculate << together[i].error;
        const EngineStats stats = engine.stats();
        EXPECT_EQ(stats.running, 0);
        EXPECT_EQ(stats.free_cache_tokens, stats.cache_tokens);
        if (speculate > 0) { EXPECT_GT(stats.drafted[0], 0); }
      }
}

TEST(Engine, CancellationAtAnyMomentGivesEverythingBack) {
  EngineOptions o = options_for("v41-c");
  o.max_requests = 4;
  o.step_tokens = 16;
  o.speculate = 3;
  Engine engine(o);
  std::vector<Request> requests = some_requests("v41-c", 60);
  std::mt19937 random(9);
  std::vector<std::unique_ptr<Collector>> collectors;
  std::vector<RequestId> ids;
  for (Request& r : requests) {
    r.max_tokens = 40;
    collectors.push_back(std::make_unique<Collector>());
    ids.push_back(engine.submit(r, collectors.back()->handler()));
    if (random() % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      engine.cancel(ids[random() % ids.size()]);
    }
  }
  int cancelled = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Answer& a = collectors[i]->wait();
    cancelled += a.reason == FinishReason::cancelled;
    EXPECT_TRUE(a.reason == FinishReason::cancelled || a.reason == FinishReason::length) << a.error;
    EXPECT_FALSE(engine.cancel(ids[i])) << "a finished request is unknown";
  }
  EXPECT_GT(cancelled, 0);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.free_cache_tokens, stats.cache_tokens);
  EXPECT_EQ(stats.waiting + stats.running, 0);
}

TEST(Engine, StopsAndLimits) {
  Engine engine(options_for("v41-c"));
  Request r = some_requests("v41-c", 1).front();
  r.max_tokens = 30;
  const Answer free = run_all(engine, {r}).front();
  ASSERT_EQ(free.tokens.size(), 30u);
  r.stop_tokens = {free.tokens[10]};
  const auto first = static_cast<size_t>(std::find(free.tokens.begin(), free.tokens.end(), free.tokens[10]) - free.tokens.begin());
  const Answer stopped = run_all(engine, {r}).front();
  EXPECT_EQ(stopped.reason, FinishReason::stop);
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>(free.tokens.begin(), free.tokens.begin() + static_cast<std::ptrdiff_t>(first)));
  r.min_tokens = 20;
  EXPECT_GE(run_all(engine, {r}).front().tokens.size(), 20u);
  r.deadline_seconds = 1e-9;
  EXPECT_EQ(run_all(engine, {r}).front().reason, FinishReason::deadline);
}

TEST(Engine, RefusesWhatIsWrong) {
  EngineOptions o = options_for("v41-c");
  o.cache_tokens = 1024;
  Engine engine(o);
  const auto refused = [&](auto change, const std::string& message) {
    Request r = some_requests("v41-c", 1).front();
    change(r);
    try {
      engine.submit(r, [](const Event&) {});
      ADD_FAILURE() << "accepted: " << message;
    } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what(); }
  };
  refused([](Request& r) { r.prompt.clear(); }, "prompt is empty");
  refused([](Request& r) { r.prompt.push_back(256); }, "token id 256");
  refused([](Request& r) { r.max_tokens = 0; }, "max_tokens is 0");
  refused([](Request& r) { r.min_tokens = 1000; }, "min_tokens is 1000");
  refused([](Request& r) { r.sampling.temperature = -1; }, "temperature is -1");
  refused([](Request& r) { r.sampling.top_p = 0; }, "top_p is 0");
  refused([](Request& r) { r.sampling.repetition_penalty = 0; }, "repetition_penalty is 0");
  refused([](Request& r) { r.sampling.presence_penalty = 3; }, "presence_penalty is 3");
  refused([](Request& r) { r.sampling.logit_bias[999] = 1; }, "token id 999");
  refused([](Request& r) { r.sampling.logit_bias[9] = 1000; }, "logit_bias is 1000");
  refused([](Request& r) { r.logprobs = 21; }, "logprobs is 21");
  refused([](Request& r) { r.speculate = 6; }, "speculate is 6");
  refused([](Request& r) { r.max_tokens = 100000; }, "cache pages");
  EXPECT_FALSE(engine.cancel(12345));
  // And the engine is unharmed.
  Request r = some_requests("v41-c", 1).front();
  EXPECT_EQ(run_all(engine, {r}).front().reason, FinishReason::length);
}

}  // namespace
}  // namespace hadal
