// Drafts change the speed and no token: at every depth, rejected at every place, at any temperature, side by side.
#include <atomic>
#include <thread>

#include "engine/draft_guard.h"
#include "engine/generation.h"
#include "engine_support.h"

namespace hadal {
namespace {

// Drafts what the answers will be, except that every draft number `wrong` of a step (from 0) is another token.
class Script {
 public:
  Script(const std::vector<Request>& requests, const std::vector<Answer>& answers, int wrong) : wrong_(wrong) {
    for (size_t i = 0; i < requests.size(); ++i) {
      texts_.push_back(requests[i].prompt);
      texts_.back().insert(texts_.back().end(), answers[i].tokens.begin(), answers[i].tokens.end());
    }
  }
  std::vector<int32_t> operator()(std::span<const int32_t> tokens, int most) const {
    std::vector<int32_t> drafts;
    for (const auto& text : texts_) {
      if (text.size() < tokens.size() || !std::equal(tokens.begin(), tokens.end(), text.begin())) continue;
      for (size_t i = tokens.size(); i < text.size() && static_cast<int>(drafts.size()) < most; ++i)
        drafts.push_back(static_cast<int>(drafts.size()) == wrong_ ? (text[i] + 1) % 256 : text[i]);
      break;
    }
    return drafts;
  }

 private:
  std::vector<std::vector<int32_t>> texts_;
  int wrong_;
};

std::vector<Request> long_answers(const std::string& set, int count) {
  std::vector<Request> requests = some_requests(set, count);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_tokens = 40 + static_cast<int64_t>(i);
    requests[i].prompt.push_back(static_cast<int32_t>(i));  // a script must tell them apart
  }
  return requests;
}

TEST(Speculation, RejectionAtEveryPlaceOfEveryDepth) {
  const std::vector<Request> requests = long_answers("v41-a", 5);  // temperatures 0 and above
  const std::vector<Answer> alone = run_alone(options_for("v41-a"), requests);
  for (const int depth : {1, 2, 3, 4, 5, 6, 7, 8, 16})
    for (int wrong = 0; wrong <= depth; wrong = wrong < 8 ? wrong + 1 : wrong + 4) {  // == depth: none
      EngineOptions o = options_for("v41-a");
      o.speculate = depth;
      o.drafter = Script(requests, alone, wrong);
      o.step_tokens = 60;
      Engine engine(o);
      const std::vector<Answer> together = run_all(engine, requests);
      for (size_t i = 0; i < requests.size(); ++i)
        ASSERT_EQ(together[i], alone[i]) << "request " << i << ", depth " << depth << ", wrong " << wrong;
      const EngineStats stats = engine.stats();
      for (int i = 0; i < depth; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_GT(stats.drafted[at], 0);
        // What comes before the wrong draft is right, and nothing from there on.
        EXPECT_EQ(stats.accepted[at], i < wrong ? stats.drafted[at] : 0)
            << "depth " << depth << ", wrong " << wrong << ", at " << i;
      }
      expect_all_given_back(engine);
    }
}

TEST(Speculation, DraftersMayBeWrongInEveryWay) {
  const std::vector<Request> requests = long_answers("v41-a", 4);
  const std::vector<Answer> alone = run_alone(options_for("v41-a"), requests);
  for (const int way : {0, 1, 2, 3}) {
    EngineOptions o = options_for("v41-a");
    o.speculate = 6;
    o.drafter = [way](std::span<const int32_t> tokens, int most) -> std::vector<int32_t> {
      if (way == 0) return std::vector<int32_t>(static_cast<size_t>(most) + 50, 7);
      if (way == 1) return {-1, 3};
      if (way == 2) return {static_cast<int32_t>(tokens.size()), 512};
      return {};
    };
    Engine engine(o);
    EXPECT_EQ(run_all(engine, requests), alone) << way;
  }
  EngineOptions o = options_for("v41-a");
  o.speculate = 17;
  o.drafter = [](auto, int) { return std::vector<int32_t>{}; };
  EXPECT_THROW(Engine{o}, Error);
}

// The tools that run a request by themselves.
TEST(Speculation, GenerationIsTheSameWithDrafts) {
  GoldenModel golden("v41-a", Backend::cpu, Numerics::bf16, 1);
  for (Request r : some_requests("v41-a", 4)) {
    r.max_tokens = 60;
    const auto answer = [&](int speculate, int64_t context, Generation::Stats* stats) {
      r.speculate = speculate;
      SingleRequest single(golden.model, context);
      Generation generation(single, r, context, single.prefill(r.prompt, {}));
      std::vector<int32_t> tokens;
      for (std::vector<int32_t> next = generation.next(); !next.empty(); next = generation.next())
        tokens.insert(tokens.end(), next.begin(), next.end());
      if (stats != nullptr) *stats = generation.stats();
      return tokens;
    };
    const auto prompt = static_cast<int64_t>(r.prompt.size());
    const std::vector<int32_t> want = answer(0, prompt + 60, nullptr);
    EXPECT_EQ(want.size(), 60u);
    for (const int speculate : {1, 3, 5, -1}) {
      Generation::Stats stats;
      EXPECT_EQ(answer(speculate, prompt + 60, &stats), want) << speculate;
      if (speculate > 0) { EXPECT_GT(stats.drafted[0], 0); }  // the module may not be sure enough of any
    }
    // The end of the room.
    for (const int64_t room : {1, 2, 3, 7}) {
      const std::vector<int32_t> few = answer(5, prompt + room, nullptr);
      EXPECT_EQ(few, std::vector<int32_t>(want.begin(), want.begin() + room)) << room;
    }
  }
}

// A world where each draft costs so much of a step and is right so often.
double tokens_per_second(DraftGuard& guard, int steps, double cost, double right) {
  double seconds = 0, tokens = 0;
  for (int i = 0; i < steps; ++i) {
    const int choice = guard.choose();
    const int limit = std::min(choice, guard.most());  // the module's confidence is always high
    double expected = 1, chance = 1;
    for (int k = 0; k < limit; ++k) expected += chance *= right;
    const double took = 1 + cost * limit;
    guard.observe(choice, took, expected);
    seconds += took;
    tokens += expected;
  }
  return tokens / seconds;
}

TEST(DraftGuard, FindsTheDepthThatPays) {
  struct World {
    double cost, right;
  };
  for (const World& w : {World{0.02, 0.9}, World{0.3, 0.6}, World{1.0, 0.5}, World{0.9, 0.99}, World{0.25, 0.3}}) {
    double best = 0;
    for (int k = 0; k <= 5; ++k) {
      double expected = 1, chance = 1;
      for (int i = 0; i < k; ++i) expected += chance *= w.right;
      best = std::max(best, expected / (1 + w.cost * k));
    }
    DraftGuard guard(5);
    tokens_per_second(guard, 200, w.cost, w.right);  // learns
    EXPECT_GE(tokens_per_second(guard, 2000, w.cost, w.right), 0.97 * best) << w.cost << " " << w.right;
  }
}

TEST(DraftGuard, FollowsAChange) {
  DraftGuard guard(5);
  tokens_per_second(guard, 1000, 0.05, 0.95);
  EXPECT_GE(guard.choose(), 5);
  tokens_per_second(guard, 2000, 0.5, 0.1);  // drafts have become wrong
  EXPECT_GE(tokens_per_second(guard, 1000, 0.5, 0.1), 0.95);
  tokens_per_second(guard, 3000, 0.05, 0.95);
  EXPECT_GE(tokens_per_second(guard, 1000, 0.05, 0.95), 0.95 * (1 + 0.95 + 0.9025 + 0.857 + 0.814 + 0.774) / 1.25);
}

TEST(DraftGuard, WithoutDraftsThereIsNothingToChoose) {
  DraftGuard guard(0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(guard.choose(), 0);
    guard.observe(0, 1, 1);
  }
}

}  // namespace
}  // namespace hadal
