// The engine: every request's tokens and log-probabilities are the same alone and in any company, with and without drafts.
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "engine/operator_watch.h"
#include "engine_support.h"

namespace hadal {
namespace {

// A regular language: token t may stand at place i when t % period == i % period, and the text ends after `length` of them.
class Cycle : public Constraint {
 public:
  Cycle(int period, int length, int vocab, int32_t eos) : period_(period), length_(length), vocab_(vocab), eos_(eos) {}
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<Cycle>(*this); }
  void allowed(std::span<uint64_t> allowed) const override {
    std::fill(allowed.begin(), allowed.end(), 0);
    for (int32_t t = 0; t < vocab_; ++t)
      if (allows(t)) allowed[static_cast<size_t>(t) / 64] |= uint64_t{1} << (t % 64);
  }
  bool accept(int32_t token) override {
    if (!allows(token)) return false;
    ++at_;
    return true;
  }

 private:
  bool allows(int32_t t) const { return at_ == length_ ? t == eos_ : t != eos_ && t % period_ == at_ % period_; }
  int period_, length_, vocab_;
  int32_t eos_;
  int at_ = 0;
};

TEST(Engine, SameTokensInAnyCompany) {
  const std::vector<Request> requests = some_requests("v41-a", 12);
  const std::vector<Answer> alone = run_alone(options_for("v41-a"), requests);
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
        expect_all_given_back(engine);
        if (speculate > 0) { EXPECT_GT(stats.drafted[0], 0); }
      }
}

// A checkpoint whose head makes the logit of token 7 a NaN: the choice on the device only says that there is one, and the
// error names it all the same.
TEST(Engine, NamesTheLogitThatIsNotANumber) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("hadal-nan-{}", ::getpid());
  std::filesystem::copy(golden_directory("v41-c"), folder, std::filesystem::copy_options::recursive);
  {
    std::fstream shard(folder / "model-00002-of-00005.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    uint64_t size = 0;
    shard.read(reinterpret_cast<char*>(&size), sizeof size);
    std::string header(size, ' ');
    shard.read(header.data(), static_cast<std::streamsize>(size));
    const size_t offsets = header.find("data_offsets", header.find("\"head.weight\""));
    const uint64_t begin = std::stoull(header.substr(header.find('[', offsets) + 1));
    std::array<uint16_t, 64> row;
    row.fill(0x7fc0);
    shard.seekp(static_cast<std::streamoff>(sizeof size + size + begin + 7 * sizeof row));
    shard.write(reinterpret_cast<const char*>(row.data()), sizeof row);
  }
  EngineOptions o = options_for("v41-c");
  o.model = folder;
  Engine engine(o);
  std::vector<Request> requests = some_requests("v41-c", 3);
  for (Request& r : requests) r.sampling = {};
  requests[1].sampling.presence_penalty = 1;  // chosen on the host
  for (const Answer& answer : run_all(engine, requests)) {
    EXPECT_EQ(answer.reason, FinishReason::error);
    EXPECT_EQ(answer.error, "the logit of token 7 is not a number");
  }
  expect_all_given_back(engine);
  std::filesystem::remove_all(folder);
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
  expect_all_given_back(engine);
}

TEST(Engine, StopsAndLimits) {
  Engine engine(options_for("v41-c"));
  Request r = some_requests("v41-c", 1).front();
  r.max_tokens = 30;
  const Answer free = run_all(engine, {r}).front();
  ASSERT_EQ(free.tokens.size(), 30u);
  r.stop_tokens = {free.tokens[10]};
  const auto first =
      static_cast<size_t>(std::find(free.tokens.begin(), free.tokens.end(), free.tokens[10]) - free.tokens.begin());
  const Answer stopped = run_all(engine, {r}).front();
  EXPECT_EQ(stopped.reason, FinishReason::stop);
  EXPECT_EQ(stopped.tokens,
            std::vector<int32_t>(free.tokens.begin(), free.tokens.begin() + static_cast<std::ptrdiff_t>(first)));
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
  refused([](Request& r) { r.n = 0; }, "n is 0");
  refused([](Request& r) { r.constraint = std::make_shared<Cycle>(2, 5, 256, 1); },
          "ignore_eos contradicts a constraint");
  EXPECT_FALSE(engine.cancel(12345));
  // And the engine is unharmed.
  Request r = some_requests("v41-c", 1).front();
  EXPECT_EQ(run_all(engine, {r}).front().reason, FinishReason::length);
}

TEST(Engine, ConstraintsHoldWithAndWithoutDrafts) {
  std::vector<Request> requests = some_requests("v41-a", 9);
  int32_t eos = 0;
  {
    Engine engine(options_for("v41-a"));
    eos = engine.eos_token();
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& r = requests[i];
    r.ignore_eos = false;
    r.max_tokens = 40;
    r.constraint = std::make_shared<Cycle>(static_cast<int>(2 + i % 4), static_cast<int>(3 * i), 512, eos);
    if (i == 8) r.min_tokens = 40;  // the text is complete before, and ends
  }
  const std::vector<Answer> alone = run_alone(options_for("v41-a"), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(alone[i].tokens.size(), 3 * i) << alone[i];
    EXPECT_EQ(alone[i].reason, FinishReason::stop);
    for (size_t t = 0; t < alone[i].tokens.size(); ++t)
      EXPECT_EQ(static_cast<size_t>(alone[i].tokens[t]) % (2 + i % 4), t % (2 + i % 4));
  }
  for (const int speculate : {0, 1, 3, 5, -1}) {
    EngineOptions o = options_for("v41-a");
    o.speculate = speculate;
    o.step_tokens = 50;
    Engine engine(o);
    const std::vector<Answer> together = run_all(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i)
      ASSERT_EQ(together[i], alone[i]) << "request " << i << ", drafts " << speculate;
    expect_all_given_back(engine);
  }
}

// A set of tokens that never changes is also what biases of -100 leave, as long as no logit lies so far below.
TEST(Engine, ConstraintAgainstBias) {
  std::vector<Request> masked = some_requests("v41-a", 6), biased = masked;
  Engine engine(options_for("v41-a"));
  for (size_t i = 0; i < masked.size(); ++i) {
    masked[i].constraint = std::make_shared<Cycle>(1, 1 << 20, 512, engine.eos_token());
    masked[i].ignore_eos = false;
    biased[i].sampling.logit_bias[engine.eos_token()] = -100;
  }
  EXPECT_EQ(run_all(engine, masked), run_all(engine, biased));
}

TEST(Engine, SamplesAreTheRequestsOfTheirSeeds) {
  std::vector<Request> forked = some_requests("v41-a", 5), single;
  forked[3].prompt.resize(1);
  for (size_t i = 0; i < forked.size(); ++i) {
    forked[i].n = static_cast<int>(i + 1);
    for (int k = 0; k < forked[i].n; ++k) {
      single.push_back(forked[i]);
      single.back().n = 1;
      single.back().sampling.seed += static_cast<uint64_t>(k);
    }
  }
  const std::vector<Answer> alone = run_alone(options_for("v41-a"), single);
  for (const bool prefix_cache : {true, false})
    for (const int most : {1, 3, 16})
      for (const int speculate : {0, 5}) {
        EngineOptions o = options_for("v41-a");
        o.prefix_cache = prefix_cache;
        o.max_requests = most;
        o.step_tokens = 40;
        o.speculate = speculate;
        Engine engine(o);
        const std::vector<Answer> together = run_all(engine, forked);
        ASSERT_EQ(together.size(), alone.size());
        int64_t prompt_tokens = 0;
        for (size_t i = 0; i < forked.size(); ++i)
          prompt_tokens += static_cast<int64_t>(forked[i].prompt.size()) + forked[i].n - 1;
        for (size_t i = 0; i < alone.size(); ++i)
          ASSERT_EQ(together[i], alone[i]) << "sample " << i << ", " << most << " at once, drafts " << speculate;
        // The prompt is run once; each sample but the first runs its last token.
        if (!prefix_cache) { EXPECT_EQ(engine.stats().prompt_tokens, prompt_tokens); }
        expect_all_given_back(engine);
      }
}

TEST(Engine, CancellingEndsAllSamples) {
  EngineOptions o = options_for("v41-c");
  o.max_requests = 2;
  Engine engine(o);
  for (const int moment : {0, 1, 5, 20}) {
    Request r = some_requests("v41-c", 1).front();
    r.n = 6;
    r.max_tokens = 3000;
    Collector collector(r.n);
    const RequestId id = engine.submit(r, collector.handler());
    std::this_thread::sleep_for(std::chrono::milliseconds(moment));
    EXPECT_TRUE(engine.cancel(id));
    for (const Answer& a : collector.wait_all()) EXPECT_EQ(a.reason, FinishReason::cancelled);
    EXPECT_FALSE(engine.cancel(id));
  }
  expect_all_given_back(engine);
}

// One of several samples: the others go on, also when it is the one that runs the prompt, wherever that is.
TEST(Engine, CancellingOneSample) {
  EngineOptions o = options_for("v41-a");
  o.max_requests = 3;
  o.step_tokens = 24;
  Request r = some_requests("v41-a", 1).front();
  r.prompt = golden_ids("v41-a");
  r.prompt.resize(140);
  r.max_tokens = 30;
  std::vector<Request> single(5, r);
  for (size_t k = 0; k < single.size(); ++k) single[k].sampling.seed += k;
  const std::vector<Answer> alone = run_alone(o, single);
  r.n = 5;
  for (const bool prefix_cache : {true, false}) {
    o.prefix_cache = prefix_cache;
    Engine engine(o);
    for (int moment = 0; moment < 24; ++moment) {
      engine.clear_prefix_cache();
      Collector collector(r.n);
      const int cancelled = moment % 3 == 0 ? 0 : moment % 5;
      const int64_t steps = engine.stats().steps;
      const RequestId id = engine.submit(r, collector.handler());
      while (engine.stats().steps < steps + moment / 2) std::this_thread::yield();
      const bool known = engine.cancel(id, cancelled);
      EXPECT_FALSE(engine.cancel(id, 5)) << "there is no such sample";
      const std::vector<Answer>& got = collector.wait_all();
      for (size_t k = 0; k < got.size(); ++k) {
        if (static_cast<int>(k) == cancelled && known) {
          // Unless its last token was on the way.
          EXPECT_TRUE(got[k].reason == FinishReason::cancelled || got[k] == alone[k]) << got[k];
          ASSERT_LE(got[k].tokens.size(), alone[k].tokens.size());
          EXPECT_TRUE(std::equal(got[k].tokens.begin(), got[k].tokens.end(), alone[k].tokens.begin()));
        } else {
          ASSERT_EQ(got[k], alone[k]) << "sample " << k << " of which " << cancelled << " was cancelled at step "
                                      << moment;
        }
      }
    }
    expect_all_given_back(engine);
  }
}

// A step in which an operator fails ends the requests in it with the error; those that wait and those that come go on.
TEST(Engine, AFailedStepEndsItsRequests) {
  struct Failing : OperatorWatch {
    void before(OperatorId id) override {
      if (static_cast<int>(id) == which && --left == 0) throw std::runtime_error("the device failed");
    }
    std::atomic<int> which{-1}, left{0};
  } failing;
  std::vector<Request> requests = some_requests("v41-a", 6);
  for (Request& r : requests) r.max_tokens = 12;
  const std::vector<Answer> alone = run_alone(options_for("v41-a"), requests);
  EngineOptions o = options_for("v41-a");
  o.max_requests = 3;
  o.step_tokens = 90;
  o.speculate = 2;
  watch_operators(&failing);
  Engine engine(o);
  watch_operators(nullptr);
  int failed_steps = 0;
#define HADAL_COUNT(op, Args) 1,
  constexpr int kOperators = static_cast<int>(std::initializer_list<int>{HADAL_OPERATORS(HADAL_COUNT)}.size());
#undef HADAL_COUNT
  for (int which = 0; which < kOperators; ++which)
    for (const int call : {1, 9, 40}) {
      engine.clear_prefix_cache();
      failing.left = call;
      failing.which = which;
      const std::vector<Answer> got = run_all(engine, requests);
      failing.which = -1;
      int failed = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i].reason == FinishReason::error) {
          ++failed;
          EXPECT_EQ(got[i].error, "the device failed");
          EXPECT_TRUE(std::equal(got[i].tokens.begin(), got[i].tokens.end(), alone[i].tokens.begin()));
        } else {
          ASSERT_EQ(got[i], alone[i]) << "operator " << which << ", call " << call;
        }
      }
      EXPECT_LE(failed, 3) << "only those that ran";
      EXPECT_EQ(failed > 0, failing.left <= 0) << "operator " << which;
      failed_steps += failed > 0;
      expect_all_given_back(engine);
      if (call == 1) { ASSERT_EQ(run_all(engine, requests), alone); }
    }
  EXPECT_GT(failed_steps, 2 * kOperators);
}

// What goes wrong in one request ends that one.
TEST(Engine, AFailureIsOneRequestsOwn) {
  struct Broken : Constraint {
    std::unique_ptr<Constraint> clone() const override { return std::make_unique<Broken>(*this); }
    void allowed(std::span<uint64_t> allowed) const override {
      if (left == 0) throw std::runtime_error("the grammar broke");
      std::fill(allowed.begin(), allowed.end(), ~uint64_t{0});
    }
    bool accept(int32_t) override { return left-- > 0; }
    int left = 4;
  };
  std::vector<Request> requests = some_requests("v41-a", 6);
  for (Request& r : requests) r.max_tokens = 20;
  const std::vector<Answer> alone = run_alone(options_for("v41-a"), requests);
  requests[2].constraint = std::make_shared<Broken>();
  requests[2].ignore_eos = false;
  requests[2].n = 3;
  for (const int speculate : {0, 3}) {
    EngineOptions o = options_for("v41-a");
    o.speculate = speculate;
    Engine engine(o);
    std::vector<Answer> together = run_all(engine, requests);
    for (size_t k = 2; k < 5; ++k) {
      EXPECT_EQ(together[k].reason, FinishReason::error);
      EXPECT_EQ(together[k].error, "the grammar broke");
      EXPECT_EQ(together[k].tokens.size(), 4u);
    }
    together.erase(together.begin() + 3, together.begin() + 5);
    for (size_t i = 0; i < requests.size(); ++i)
      if (i != 2) { EXPECT_EQ(together[i], alone[i]) << i; }
    // A handler that throws, too.
    Collector other;
    const EventHandler good = other.handler();
    engine.submit(requests[0], [](const Event&) { throw std::runtime_error("the client is gone"); });
    engine.submit(requests[1], good);
    EXPECT_EQ(other.wait(), alone[1]);
    run_all(engine, {requests[3]});
    expect_all_given_back(engine);
  }
}

}  // namespace
}  // namespace hadal
