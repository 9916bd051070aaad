// The prefix cache: whatever an engine has run before, a request's tokens and log-probabilities are those of a cold engine.
#include <gtest/gtest.h>
// rapidcheck's header needs gtest's before it.
#include <rapidcheck/gtest.h>

#include "engine/prefix_cache.h"
#include "engine_support.h"

namespace hadal {
namespace {

std::vector<int32_t> joined(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

TEST(PrefixCache, RepeatedPromptRunsOneToken) {
  Engine engine(options_for("v41-a"));
  const Request r = request_of(ids_from("v41-a", 0, 150), 10, 4);
  const Answer cold = run_all(engine, {r}).front();
  EXPECT_EQ(cold.usage.cached_tokens, 0);
  EXPECT_EQ(engine.stats().prompt_tokens, 150);
  const Answer warm = run_all(engine, {r}).front();
  EXPECT_EQ(warm, cold);
  EXPECT_EQ(warm.usage.cached_tokens, 149);
  EXPECT_EQ(warm.usage.recomputed_tokens, 0);
  EXPECT_EQ(engine.stats().prompt_tokens, 151);
}

TEST(PrefixCache, NextTurnContinuesTheAnswer) {
  Engine engine(options_for("v41-a"));
  const Request first = request_of(ids_from("v41-a", 0, 90), 20, 4);
  const Answer answer = run_all(engine, {first}).front();
  const Request second = request_of(joined(joined(first.prompt, answer.tokens), ids_from("v41-a", 90, 33)), 12, 5);
  const Answer got = run_all(engine, {second}).front();
  // The last sampled token was not run.
  EXPECT_EQ(got.usage.cached_tokens, 90 + 19);
  EXPECT_EQ(got.usage.recomputed_tokens, 0);
  EXPECT_EQ(got, run_alone(options_for("v41-a"), {second}).front());
}

// The first to branch off runs everything again and leaves a snapshot at the branch; the next one finds it.
TEST(PrefixCache, BranchesAreKeptWhenSeenTwice) {
  Engine engine(options_for("v41-a"));
  const std::vector<int32_t> system = ids_from("v41-a", 0, 100);
  std::vector<int64_t> ran;
  for (size_t user = 0; user < 4; ++user) {
    const Request r = request_of(joined(system, ids_from("v41-a", 120 + 40 * user, 40)), 5, user);
    const int64_t before = engine.stats().prompt_tokens;
    const Answer got = run_all(engine, {r}).front();
    EXPECT_EQ(got, run_alone(options_for("v41-a"), {r}).front()) << user;
    ran.push_back(engine.stats().prompt_tokens - before);
    EXPECT_EQ(got.usage.cached_tokens, user < 2 ? 0 : 100);
    EXPECT_EQ(got.usage.recomputed_tokens, 0);
  }
  EXPECT_EQ(ran, (std::vector<int64_t>{140, 140, 40, 40}));
}

// Every length of a common prefix, in the three prefill modes.
TEST(PrefixCache, EveryHitLength) {
  for (const char* prefill : {"full", "exact", "bounded"}) {
    EngineOptions o = options_for("v41-a");
    o.prefill = prefill;
    Engine engine(o);
    const std::vector<int32_t> first = ids_from("v41-a", 0, 40);
    run_all(engine, {request_of(first, 6, 1)});
    std::vector<Request> requests;
    for (size_t n = 1; n <= 40; ++n)
      for (const size_t more : {0, 1, 9, 30}) {
        std::vector<int32_t> prompt(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(n));
        requests.push_back(request_of(joined(prompt, ids_from("v41-a", 100 + n, more)), 4, n));
      }
    const std::vector<Answer> cold = run_alone(o, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const Answer got = run_all(engine, {requests[i]}).front();
      ASSERT_EQ(got, cold[i]) << prefill << ", request " << i;
      ASSERT_GE(got.usage.cached_tokens, got.usage.recomputed_tokens);
      ASSERT_LT(got.usage.cached_tokens, got.usage.prompt_tokens);
    }
    EXPECT_GT(engine.stats().prefix_hits, 60);
    expect_all_given_back(engine);
  }
}

// Conversations that continue, branch off anywhere and come back, several at a time, while memory is short.
RC_GTEST_PROP(PrefixCacheProperty, WarmEqualsCold, ()) {
  static Engine& cold = *new Engine([] {
    EngineOptions o = options_for("v41-a");
    o.max_requests = 1;
    o.prefix_cache = false;
    return o;
  }());
  EngineOptions o = options_for("v41-a");
  o.prefill = *rc::gen::element("exact", "full");
  o.max_requests = *rc::gen::inRange(1, 5);
  o.step_tokens = *rc::gen::element(5, 30, 200, 1000);
  o.speculate = *rc::gen::element(0, 0, 2, 5);
  o.cache_tokens = *rc::gen::element(400, 800, 4000);
  Engine engine(o);
  std::vector<std::vector<int32_t>> texts = {ids_from("v41-a", 0, 1)};
  const int rounds = *rc::gen::inRange(2, 5);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Request> requests;
    const int together = *rc::gen::inRange(1, 5);
    for (int i = 0; i < together; ++i) {
      const auto& text = texts[*rc::gen::inRange<size_t>(0, texts.size())];
      // All of it, anywhere, or near the ends of pages.
      const size_t cut =
          std::min(text.size(), *rc::gen::oneOf(rc::gen::just<size_t>(1000), rc::gen::inRange<size_t>(0, 200),
                                                rc::gen::element<size_t>(127, 128, 129)));
      const size_t more = *rc::gen::inRange<size_t>(cut == 0 ? 1 : 0, 90);
      std::vector<int32_t> prompt(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(cut));
      prompt = joined(prompt, ids_from("v41-a", *rc::gen::inRange<size_t>(0, 200), more));
      if (prompt.size() > 280) prompt.resize(280);
      requests.push_back(request_of(prompt, *rc::gen::inRange(1, 20), *rc::gen::inRange<uint64_t>(0, 5)));
      if (*rc::gen::inRange(0, 4) == 0) requests.back().n = 2;
      if (*rc::gen::inRange(0, 4) == 0) requests.back().priority = 1;
      if (*rc::gen::inRange(0, 4) == 0) requests.back().sampling.repetition_penalty = 1.3;
    }
    const std::vector<Answer> got = run_all(engine, requests);
    const std::vector<Answer> want = run_all(cold, requests);
    RC_ASSERT(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) RC_ASSERT(got[i] == want[i]);
    size_t sample = 0;
    for (const Request& r : requests) {
      texts.push_back(joined(r.prompt, got[sample].tokens));
      sample += static_cast<size_t>(r.n);
    }
  }
  RC_TAG(o.cache_tokens, engine.stats().evictions > 0, engine.stats().prefix_hits > 0);
  engine.clear_prefix_cache();
  const EngineStats stats = engine.stats();
  RC_ASSERT(stats.unused_cache_tokens == stats.cache_tokens);
}

// The tree by itself, against a list of all snapshots.
class Tree {
 public:
  explicit Tree(size_t snapshots, int pages = 64)
      : model_("v41-c", Backend::cpu, Numerics::bf16, 1),
        pools_(*model_.context, model_.model.cache_layout(), 2, pages),
        cache_(pools_, snapshots * (pools_.slot_bytes() + 400)) {}

  Snapshot snapshot(std::span<const int32_t> tokens) {
    RequestState state(pools_);
    state.propose(tokens);
    state.commit(static_cast<int64_t>(tokens.size()));
    return state.snapshot();
  }
  int64_t hit(std::span<const int32_t> tokens) {
    const PrefixCache::Match m = cache_.find(tokens, [](const Snapshot&) { return true; });
    return m.snapshot == nullptr ? 0 : m.snapshot->length();
  }
  PrefixCache& cache() { return cache_; }
  CachePools& pools() { return pools_; }

 private:
  GoldenModel model_;
  CachePools pools_;
  PrefixCache cache_;
};

RC_GTEST_PROP(PrefixCacheProperty, FindsTheLongestPrefix, ()) {
  static Tree& tree = *new Tree(1000);
  tree.cache().clear();
  std::vector<std::vector<int32_t>> kept;
  const auto text =
      rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, 2));  // few tokens: many shared prefixes
  const int count = *rc::gen::inRange(1, 40);
  for (int i = 0; i < count; ++i) {
    auto tokens = *text;
    if (tokens.empty()) tokens = {1};
    tree.cache().insert(tree.snapshot(tokens));
    RC_ASSERT(tree.cache().contains(tokens, 0));
    kept.push_back(tokens);
    const auto asked = *text;
    size_t longest = 0, common = 0;
    for (const auto& k : kept) {
      const auto same =
          static_cast<size_t>(std::mismatch(k.begin(), k.end(), asked.begin(), asked.end()).first - k.begin());
      common = std::max(common, same);
      if (same == k.size()) longest = std::max(longest, same);
    }
    RC_ASSERT(tree.hit(asked) == static_cast<int64_t>(longest));
    RC_ASSERT(tree.cache().find(asked, [](const Snapshot&) { return false; }).tokens == static_cast<int64_t>(common));
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  RC_ASSERT(tree.cache().stats().snapshots == static_cast<int64_t>(kept.size()));
  // Eviction takes what was used longest ago, ends first, and leaves a tree that still finds the rest.
  const int64_t pages = *rc::gen::inRange(1, 64);
  RC_ASSERT(tree.cache().make_room(pages));
  RC_ASSERT(tree.pools().free_pages() >= pages);
  int64_t left = 0;
  for (const auto& k : kept) left += tree.cache().contains(k, 0);
  RC_ASSERT(tree.cache().stats().snapshots == left);
  tree.cache().clear();
  RC_ASSERT(tree.pools().free_pages() == 64);
  RC_ASSERT(tree.cache().stats().bytes == 0u);
}

TEST(PrefixCache, BudgetEvictsTheLongestUnused) {
  Tree tree(3);
  for (const int32_t t : {1, 2, 3}) tree.cache().insert(tree.snapshot(std::vector<int32_t>{t, 9}));
  EXPECT_EQ(tree.hit(std::vector<int32_t>{1, 9, 9}), 2);  // used again
  tree.cache().insert(tree.snapshot(std::vector<int32_t>{4, 9}));
  EXPECT_EQ(tree.cache().stats().evictions, 1);
  EXPECT_EQ(tree.hit(std::vector<int32_t>{2, 9}), 0);
  for (const int32_t t : {1, 3, 4}) EXPECT_EQ(tree.hit(std::vector<int32_t>{t, 9}), 2) << t;
}

// Pages come from ends: the prefix that an end shares with others outlives it.
TEST(PrefixCache, PagesComeFromEnds) {
  Tree tree(100, 8);
  std::vector<int32_t> base(256, 5);
  tree.cache().insert(tree.snapshot(base));
  EXPECT_EQ(tree.pools().free_pages(), 6);
  {
    RequestState state(tree.pools());
    state.restore(*tree.cache().find(base, [](const Snapshot&) { return true; }).snapshot);
    state.propose(std::vector<int32_t>(200, 6));
    state.commit(200);
    tree.cache().insert(state.snapshot());
  }
  EXPECT_EQ(tree.pools().free_pages(), 4) << "two pages are shared";
  EXPECT_EQ(tree.cache().pages(), 4);
  EXPECT_TRUE(tree.cache().make_room(5));
  EXPECT_EQ(tree.hit(base), 256);
  EXPECT_FALSE(tree.cache().make_room(9));
  EXPECT_EQ(tree.pools().free_pages(), 8);
}

}  // namespace
}  // namespace hadal
