// What the tests of the engine share: requests, and their answers collected.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "golden.h"
#include "hadal/engine.h"

namespace hadal {

// Of one sample. Equal answers are equal to the bit.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::error;
  Usage usage;
  std::string error;
  bool finished = false;
  bool operator==(const Answer& o) const { return tokens == o.tokens && logprobs == o.logprobs && reason == o.reason; }
};

inline std::ostream& operator<<(std::ostream& out, const Answer& a) {
  out << "reason " << static_cast<int>(a.reason) << " " << a.error << ", " << a.tokens.size() << " tokens:";
  for (const int32_t t : a.tokens) out << ' ' << t;
  return out;
}

// Collects the events of a request until every sample has had its last. The handler shares what it writes: it may still be
// leaving when the waiter goes on.
class Collector {
 public:
  explicit Collector(int samples = 1) : shared_(std::make_shared<Shared>()) {
    shared_->answers.resize(static_cast<size_t>(samples));
  }

  EventHandler handler() {
    return [shared = shared_](const Event& e) {
      const std::lock_guard lock(shared->mutex);
      Answer& answer = shared->answers.at(static_cast<size_t>(e.sample));
      EXPECT_FALSE(answer.finished) << "an event after the last one of sample " << e.sample;
      for (const GeneratedToken& t : e.tokens) {
        answer.tokens.push_back(t.token);
        answer.logprobs.push_back(t.logprob);
      }
      if (!e.finished) return;
      answer.finished = true;
      answer.reason = e.reason;
      answer.usage = e.usage;
      answer.error = e.error;
      ++shared->finished;
      shared->changed.notify_all();
    };
  }

  const std::vector<Answer>& wait_all() {
    std::unique_lock lock(shared_->mutex);
    if (!shared_->changed.wait_for(lock, std::chrono::seconds(300),
                                   [&] { return shared_->finished == shared_->answers.size(); }))
      throw std::runtime_error("the request hangs");
    return shared_->answers;
  }
  const Answer& wait() { return wait_all().front(); }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Answer> answers;
    size_t finished = 0;
  };
  std::shared_ptr<Shared> shared_;
};

// Holds the engine, in the handler of a request that has given so many tokens, until the test has done something: what it does
// then comes in the middle of the request, however busy the machine is.
class Gate {
 public:
  explicit Gate(size_t tokens) : shared_(std::make_shared<Shared>()) { shared_->left = tokens; }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  EventHandler handler(EventHandler next) {
    return [shared = shared_, next = std::move(next)](const Event& e) {
      next(e);
      std::unique_lock lock(shared->mutex);
      shared->left -= std::min(shared->left, e.tokens.size());
      if (shared->left > 0) return;
      shared->changed.notify_all();
      shared->changed.wait(lock, [&] { return shared->open; });
    };
  }
  void wait_until_reached() {
    std::unique_lock lock(shared_->mutex);
    if (!shared_->changed.wait_for(lock, std::chrono::seconds(300), [&] { return shared_->left == 0; }))
      throw std::runtime_error("the request hangs");
  }
  void open() {
    const std::lock_guard lock(shared_->mutex);
    shared_->open = true;
    shared_->changed.notify_all();
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = 0;
    bool open = false;
  };
  std::shared_ptr<Shared> shared_;
};

inline EngineOptions options_for(const std::string& set) {
  EngineOptions o;
  o.model = model_directory(set);
  o.threads = 1;  // the number of threads changes nothing (equality_test.cc); one does not wait for a busy machine
  return o;
}

inline Request request_of(std::vector<int32_t> prompt, int64_t max_tokens = 5, uint64_t seed = 4) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  r.logprobs = 0;
  r.sampling.seed = seed;
  r.sampling.temperature = seed % 3 == 0 ? 0.0 : 0.9;
  return r;
}

// `count` of the ids that a golden set has for its prompts, from `begin` on.
inline std::vector<int32_t> ids_from(const std::string& set, size_t begin, size_t count) {
  const std::vector<int32_t> ids = golden_ids(set);
  return {ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}

inline std::vector<Request> some_requests(const std::string& set, int count) {
  const std::vector<int32_t> ids = golden_ids(set);
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

// Answers of all samples, in the order of the requests.
inline std::vector<Answer> run_all(Engine& engine, const std::vector<Request>& requests) {
  std::vector<std::unique_ptr<Collector>> collectors;
  for (const Request& r : requests) {
    collectors.push_back(std::make_unique<Collector>(r.n));
    engine.submit(r, collectors.back()->handler());
  }
  std::vector<Answer> answers;
  for (auto& c : collectors) answers.insert(answers.end(), c->wait_all().begin(), c->wait_all().end());
  return answers;
}

// Every request by itself, in an engine that keeps nothing between them.
inline std::vector<Answer> run_alone(EngineOptions options, const std::vector<Request>& requests) {
  options.max_requests = 1;
  options.speculate = 0;
  options.prefix_cache = false;
  Engine engine(options);
  std::vector<Answer> answers;
  for (const Request& r : requests) answers.push_back(run_all(engine, {r}).front());
  return answers;
}

// When nothing runs and the cache is cleared, every page is back.
inline void expect_all_given_back(Engine& engine) {
  engine.clear_prefix_cache();
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.free_cache_tokens, stats.cache_tokens);
  EXPECT_EQ(stats.unused_cache_tokens, stats.cache_tokens);
  EXPECT_EQ(stats.snapshots, 0);
  EXPECT_EQ(stats.snapshot_bytes, 0);
}

}  // namespace hadal
