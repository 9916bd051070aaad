// Decode steps that are replayed (CUDA graphs) give the bits of steps that are given anew, while requests come, grow over
// pages and go.
#include <fmt/format.h>

#include "golden.h"

namespace hadal {
namespace {

struct Live {
  std::unique_ptr<RequestState> state;
  std::vector<int32_t> ids;  // the prompt, then what it is fed
};

// Logits of every decode step of a fixed course of requests.
std::vector<std::vector<float>> decode_course(GoldenModel& golden, const std::string& set) {
  const std::vector<int32_t> ids = golden_ids(set);
  deepseek_v41::Model& model = golden.model;
  Context& context = *golden.context;
  CachePools pools(context, model.cache_layout(), 3, 12);
  std::vector<Live> live;
  std::vector<std::vector<float>> seen;
  const auto step = [&](std::span<const SegmentRequest> requests) {
    StepPlan plan(context, model.step_shape(), requests);
    const deepseek_v41::Step result = model.forward(plan);
    std::vector<float>& logits = seen.emplace_back(static_cast<size_t>(result.logits.rows * result.logits.cols));
    context.download(logits.data(), result.logits.data, logits.size() * sizeof(float));
    std::vector<int32_t> accepted;
    for (const SegmentRequest& r : requests) accepted.push_back(static_cast<int32_t>(r.state->proposed()));
    model.commit(plan, result, accepted);
  };
  const auto arrive = [&](int prompt) {
    Live& request = live.emplace_back();
    request.state = std::make_unique<RequestState>(pools);
    request.ids = ids;
    request.state->begin_prompt(prompt, PrefillMode::exact, model.config().sliding_window);
    context.reset_step();
    request.state->propose(std::span(ids).first(static_cast<size_t>(prompt)));
    const SegmentRequest segment{request.state.get(), LogitsWanted::last};
    step({&segment, 1});
  };
  const auto decode = [&](int steps, int width) {
    for (int i = 0; i < steps; ++i) {
      context.reset_step();
      std::vector<SegmentRequest> requests;
      for (Live& r : live) {
        r.state->propose(std::span(r.ids).subspan(static_cast<size_t>(r.state->length()), static_cast<size_t>(width)));
        requests.push_back({r.state.get(), LogitsWanted::all});
      }
      step(requests);
    }
  };
  arrive(121);
  decode(12, 1);  // over the edge of the first page
  arrive(7);
  decode(4, 1);
  arrive(60);
  decode(5, 1);
  decode(4, 3);  // as with drafts
  live.erase(live.begin());
  decode(4, 1);
  live.erase(live.begin() + 1);
  decode(6, 1);
  return seen;
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
