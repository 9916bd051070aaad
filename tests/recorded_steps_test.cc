// Decode steps that are replayed (CUDA graphs) give the bits of steps that are given anew, while requests come, grow over
// pages and go.
#include <fmt/format.h>

#include <bit>

#include "engine/warm_up.h"
#include "engine_support.h"
#include "golden.h"

namespace hadal {
namespace {

struct Live {
  std::unique_ptr<RequestState> state;
  std::vector<int32_t> ids;  // the prompt, then what it is fed
};

constexpr int kSlots = 3, kPages = 12;
constexpr int kPrompts = 3, kDecodeSteps = 43;  // of decode_course

// Logits of every decode step of a fixed course of requests, of those alone and not of what fills up the steps.
std::vector<std::vector<float>> decode_course(GoldenModel& golden, CachePools& pools, const std::string& set,
                                              PrefillMode mode = PrefillMode::exact) {
  const std::vector<int32_t> ids = golden_ids(set);
  deepseek_v41::Model& model = golden.model;
  Context& context = *golden.context;
  std::vector<Live> live;
  std::vector<std::vector<float>> seen;
  const auto step = [&](std::span<const SegmentRequest> requests) {
    StepPlan plan(context, model.step_shape(), requests);
    const deepseek_v41::Step result = model.forward(plan);
    std::vector<int32_t> accepted;
    int64_t rows = 0;
    for (const SegmentRequest& r : requests) {
      accepted.push_back(static_cast<int32_t>(r.state->proposed()));
      rows += r.logits == LogitsWanted::all ? r.state->proposed() : 1;
    }
    EXPECT_GE(result.logits.rows, rows);
    std::vector<float>& logits = seen.emplace_back(static_cast<size_t>(rows * result.logits.cols));
    context.download(logits.data(), result.logits.data, logits.size() * sizeof(float));
    model.commit(plan, result, accepted);
  };
  const auto arrive = [&](int prompt) {
    Live& request = live.emplace_back();
    request.state = std::make_unique<RequestState>(pools);
    request.ids = ids;
    request.state->begin_prompt(prompt, mode, model.config().sliding_window);
    context.reset_step();
    request.state->propose(std::span(ids).first(static_cast<size_t>(prompt)));
    const SegmentRequest segment{request.state.get(), LogitsWanted::last};
    step({&segment, 1});
  };
  // Request i feeds widths[i] tokens a step, or the last of them.
  const auto decode = [&](int steps, const std::vector<int>& widths) {
    for (int i = 0; i < steps; ++i) {
      context.reset_step();
      std::vector<SegmentRequest> requests;
      for (size_t r = 0; r < live.size(); ++r) {
        RequestState& state = *live[r].state;
        const int width = widths[std::min(r, widths.size() - 1)];
        state.propose(std::span(live[r].ids).subspan(static_cast<size_t>(state.length()), static_cast<size_t>(width)));
        requests.push_back({&state, LogitsWanted::all});
      }
      step(requests);
    }
  };
  arrive(121);
  decode(12, {1});  // over the edge of the first page
  arrive(7);
  decode(4, {1});
  arrive(60);
  decode(5, {1});
  decode(4, {3});  // as with drafts
  decode(3, {1, 3, 2});
  decode(2, {3, 1, 1});
  live.erase(live.begin());
  decode(4, {1});
  decode(3, {2, 3});
  live.erase(live.begin() + 1);
  decode(6, {1});
  return seen;
}

std::vector<std::vector<float>> decode_course(GoldenModel& golden, const std::string& set,
                                              PrefillMode mode = PrefillMode::exact) {
  CachePools pools(*golden.context, golden.model.cache_layout(), kSlots, kPages);
  return decode_course(golden, pools, set, mode);
}

// What every cache of the pools holds for the pages and slots in use is what the steps wrote; this is all of it.
std::vector<uint8_t> contents(const CachePools& pools) {
  std::vector<uint8_t> bytes(kSlots * pools.slot_bytes() + kPages * pools.page_bytes(pools.layout().page_tokens));
  uint8_t* at = bytes.data();
  for (int slot = 0; slot < kSlots; ++slot, at += pools.slot_bytes()) pools.save_slot(slot, at);
  for (int page = 0; page < kPages; ++page, at += pools.page_bytes(pools.layout().page_tokens))
    pools.save_page(page, pools.layout().page_tokens, at);
  return bytes;
}

void expect_equal(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i], want[i]) << what << ", step " << i;
}

// Filling up changes neither a bit of the logits nor a byte of the caches.
TEST(RecordedSteps, FilledUpStepsGiveTheSameBitsAndWriteNothingElse) {
  for (const Backend backend : {Backend::cpu, Backend::cuda}) {
    if (!unavailable_reason(backend).empty()) continue;
    for (const std::string set : {"v41-a", "v41-c"}) {
      GoldenModel golden(set, backend, Numerics::bf16);
      CachePools plain(*golden.context, golden.model.cache_layout(), kSlots, kPages);
      CachePools filled(*golden.context, golden.model.cache_layout(), kSlots, kPages);
      const auto want = decode_course(golden, plain, set);
      // Of up to 9 rows of 3 requests: up to five rows that fill up, and up to seven segments without rows.
      golden.model.set_decode_buckets({{{6, 6}, {11, 8}}, {7, kPages}});
      expect_equal(decode_course(golden, filled, set), want, set);
      EXPECT_EQ(contents(filled), contents(plain)) << set;
    }
  }
}

TEST(RecordedSteps, BucketsCoverWhatTheyShould) {
  const DecodeBuckets b = decode_buckets(100, 530, 1);
  std::vector<int> rows;
  for (const DecodeBuckets::Size& size : b.sizes) {
    rows.push_back(size.rows);
    EXPECT_EQ(size.segments, size.rows);
  }
  EXPECT_EQ(rows, (std::vector<int>{1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
                                    15, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 100}));
  EXPECT_EQ(b.pages, (std::vector<int>{64, 256, 530}));
  EXPECT_EQ(decode_buckets(1, 3, 1).sizes, (std::vector<DecodeBuckets::Size>{{1, 1}}));
  EXPECT_EQ(decode_buckets(1, 3, 1).pages, std::vector<int>{3});
}

// Every mixture of drafts has a size, which is little more than it needs, and there are few.
TEST(RecordedSteps, BucketsHoldEveryMixtureOfDrafts) {
  for (const int requests : {1, 2, 3, 5, 16, 17, 32, 100, 256})
    for (const int width : {1, 2, 3, 4, 6, 8}) {
      const DecodeBuckets b = decode_buckets(requests, 64, width);
      EXPECT_TRUE(std::is_sorted(b.sizes.begin(), b.sizes.end(), [](const auto& a, const auto& c) {
        return std::pair(a.rows, a.segments) < std::pair(c.rows, c.segments);
      }));
      EXPECT_LE(b.sizes.size(), 16 + 8 * std::bit_width(static_cast<unsigned>(requests * width)));
      for (int n = 1; n <= requests; ++n)
        for (int rows = n; rows <= n * width; ++rows) {
          const DecodeBuckets::Size* size = b.holding(n, rows);
          ASSERT_NE(size, nullptr) << n << " requests, " << rows << " rows of up to " << requests << " x " << width;
          ASSERT_GE(size->rows, rows);
          ASSERT_LE(size->rows, rows + rows / 4);
          ASSERT_GE(size->segments, n + size->rows - rows);
        }
      EXPECT_EQ(b.holding(requests, requests * width + 1), nullptr);
    }
}

// After the warm-up of an engine no decode step of it is recorded any more, and the bits are those of eager steps.
TEST(RecordedSteps, CudaGraphsOfTheStartServeEveryDecodeStep) {
  if (const std::string reason = unavailable_reason(Backend::cuda); !reason.empty()) GTEST_SKIP() << reason;
  for (const Numerics numerics : {Numerics::bf16, Numerics::fp8})
    for (const std::string set : {"v41-a", "v41-c", "synthetic"}) {
      if (numerics == Numerics::fp8 && set != "synthetic") continue;  // groups of 32 outputs are refused
      GoldenModel golden(set, Backend::cuda, numerics);
      const PrefillMode mode = set == "v41-c" ? PrefillMode::bounded : PrefillMode::exact;
      golden.model.set_recording(false);
      const auto want = decode_course(golden, set, mode);
      golden.model.set_recording(true);
      CachePools pools(*golden.context, golden.model.cache_layout(), kSlots, kPages);
      EngineOptions options;
      options.max_requests = kSlots;
      options.step_tokens = 64;  // less than the prompts of the course: step memory grows, and the graphs stay
      options.speculate = 2;
      MemoryPlan plan;
      warm_up(golden.model, pools, options, 2, plan);
      // A forward pass for each width of the page table, of which there is one here, and a commit.
      const auto sizes = static_cast<int64_t>(decode_buckets(kSlots, kPages, 3).sizes.size());
      EXPECT_EQ(plan.graphs, 2 * sizes) << set;
      EXPECT_GT(plan.steps, 0);
      for (int course = 0; course < 2; ++course) expect_equal(decode_course(golden, pools, set, mode), want, set);
      // A forward pass and a commit each. What was recorded later are the prompts, when they came again.
      EXPECT_EQ(golden.model.recorded(), 2 * kPrompts) << set;
      EXPECT_EQ(golden.model.replays(), 2 * (2 * kDecodeSteps + kPrompts)) << set;
      EXPECT_EQ(golden.model.prepared(), plan.graphs);
    }
}

// Requests that draft as many tokens as they like, many at a time and few, find their steps recorded. Prompts of one token are
// decode steps too, so nothing else is left to record.
TEST(RecordedSteps, CudaGraphsOfTheStartServeEveryMixtureOfDrafts) {
  if (const std::string reason = unavailable_reason(Backend::cuda); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string set : {"v41-a", "synthetic"}) {
    EngineOptions o;
    o.model = model_directory(set);
    o.backend = "cuda";
    o.prefix_cache = false;
    o.max_requests = 9;
    o.speculate = 5;
    const int32_t image = Checkpoint::open(o.model).config().image_token_id;
    std::vector<Request> requests = some_requests(set, 24);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt = {static_cast<int32_t>(i + 1)};
      requests[i].max_tokens = 30 + static_cast<int64_t>(7 * i % 40);
      requests[i].ignore_eos = true;
      requests[i].sampling.logit_bias[image] = -100;  // its rows are never recorded
    }
    o.drafter = [](auto, int) { return std::vector<int32_t>{}; };
    std::vector<Answer> want;
    {
      Engine engine(o);
      want = run_all(engine, requests);
    }
    // Any number of drafts, of which the first ones are right.
    o.drafter = [&](std::span<const int32_t> tokens, int most) {
      std::vector<int32_t> drafts;
      const Answer& answer = want[static_cast<size_t>(tokens.front() - 1)];
      const size_t count = (tokens.size() * 7 + static_cast<size_t>(tokens.front())) % static_cast<size_t>(most + 1);
      for (size_t i = tokens.size() - 1; i < answer.tokens.size() && drafts.size() < count; ++i)
        drafts.push_back(drafts.size() < 3 ? answer.tokens[i] : (answer.tokens[i] + 1) % 100);
      return drafts;
    };
    Engine engine(o);
    const std::vector<Answer> got = run_all(engine, requests);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i], want[i]) << set << ", request " << i;
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.graphs_since, 0) << set;
    EXPECT_EQ(stats.graph_replays, 2 * stats.steps) << set;
    for (size_t i = 0; i < static_cast<size_t>(o.speculate); ++i) {
      EXPECT_GT(stats.drafted[i], i + 1 < static_cast<size_t>(o.speculate) ? stats.drafted[i + 1] : 0) << i;
    }
  }
}

// Chunks of prompts whose layers run different rows, of several requests at a time too.
TEST(RecordedSteps, CudaGraphsOfChunksGiveTheBitsOfEagerOnes) {
  if (const std::string reason = unavailable_reason(Backend::cuda); !reason.empty()) GTEST_SKIP() << reason;
  const std::string set = "v41-a";
  const std::vector<int32_t> ids = golden_ids(set);
  GoldenModel golden(set, Backend::cuda, Numerics::bf16);
  for (const PrefillMode mode : {PrefillMode::full, PrefillMode::exact, PrefillMode::bounded}) {
    std::vector<std::vector<float>> want;
    for (int pass = 0; pass < 2; ++pass) {
      golden.model.set_recording(pass > 0);
      const int64_t before = golden.model.replays();
      CachePools pools(*golden.context, golden.model.cache_layout(), kSlots, kPages);
      std::vector<std::vector<float>> got;
      // The same prompts over and over: from the second time on their shapes are known.
      for (int again = 0; again < 3; ++again) {
        RequestState a(pools), b(pools);
        a.begin_prompt(300, mode, golden.model.config().sliding_window);
        b.begin_prompt(90, mode, golden.model.config().sliding_window);
        for (int step = 0; step < 6; ++step) {
          golden.context->reset_step();
          std::vector<SegmentRequest> requests;
          a.propose(std::span(ids).subspan(static_cast<size_t>(a.length()), 50));
          requests.push_back({&a, step == 5 ? LogitsWanted::last : LogitsWanted::none});
          if (step < 3) {
            b.propose(std::span(ids).subspan(static_cast<size_t>(b.length()), 30));
            requests.push_back({&b, step == 2 ? LogitsWanted::last : LogitsWanted::none});
          }
          StepPlan plan(*golden.context, golden.model.step_shape(), requests);
          const deepseek_v41::Step result = golden.model.forward(plan);
          if (result.logits) {
            std::vector<float>& logits = got.emplace_back(static_cast<size_t>(result.logits.rows * result.logits.cols));
            golden.context->download(logits.data(), result.logits.data, logits.size() * sizeof(float));
          }
          std::vector<int32_t> accepted;
          for (const SegmentRequest& r : requests) accepted.push_back(static_cast<int32_t>(r.state->proposed()));
          golden.model.commit(plan, result, accepted);
        }
      }
      if (pass == 0) want = got;
      expect_equal(got, want, std::string(to_string(mode)));
      const int64_t replays = golden.model.replays() - before;
      if (pass == 0)
        EXPECT_EQ(replays, 0);
      else
        EXPECT_GE(replays, 2 * 6 * 2) << to_string(mode) << ": forward and commit, from the second time on";
    }
  }
}

TEST(RecordedSteps, CudaGraphsGiveTheBitsOfEagerSteps) {
  if (const std::string reason = unavailable_reason(Backend::cuda); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string set : {"v41-a", "v41-c", "synthetic"}) {
    GoldenModel eager(set, Backend::cuda, Numerics::bf16), graphs(set, Backend::cuda, Numerics::bf16);
    eager.model.set_recording(false);
    const auto want = decode_course(eager, set);
    // The second course finds the recordings of the first, over other pools.
    for (int course = 0; course < 2; ++course) {
      const auto got = decode_course(graphs, set);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(got[i], want[i]) << set << ", course " << course << ", step " << i;
    }
    EXPECT_EQ(eager.model.replays(), 0);
    EXPECT_GT(graphs.model.replays(), 40) << set;
  }
}

}  // namespace
}  // namespace hadal
