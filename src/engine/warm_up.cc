#include "engine/warm_up.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <numeric>

#include "base/error.h"
#include "engine/backend.h"

namespace hadal {
namespace {

using deepseek_v41::Model;
using deepseek_v41::Step;

class WarmUp {
 public:
  WarmUp(Model& model, CachePools& pools) : model_(model), pools_(pools), shape_(model.step_shape()) {}

  // A step of one prompt, or of so many requests with `width` rows each: run and dropped again, or recorded.
  void prompt(int rows, int pages) {
    std::deque<RequestState> states;
    propose(states, 1, rows);
    run(states, LogitsWanted::last, pages, false);
  }
  void decode(int requests, int width, int pages, bool record) {
    std::deque<RequestState> states;
    propose(states, requests, width);
    run(states, LogitsWanted::all, pages, record);
  }

 private:
  void propose(std::deque<RequestState>& states, int requests, int rows) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    std::iota(tokens.begin(), tokens.end(), 0);
    const V41Config& c = model_.config();
    for (int32_t& t : tokens) {
      t %= c.vocab_size;
      if (t == c.image_token_id) t = 0;
    }
    for (int i = 0; i < requests; ++i) {
      states.emplace_back(pools_);
      states.back().propose(tokens);
    }
  }

  void run(std::deque<RequestState>& states, LogitsWanted wanted, int pages, bool record) {
    Context& context = model_.context();
    context.reset_step();
    std::vector<SegmentRequest> requests;
    for (RequestState& state : states) requests.push_back({&state, wanted});
    StepShape shape = shape_;
    shape.least_pages = pages;
    StepPlan plan(context, shape, requests);
    if (record) return model_.prepare(plan);
    const Step step = model_.forward(plan);
    model_.write_rings(plan, step, {});
    context.wait();
  }

  Model& model_;
  CachePools& pools_;
  const StepShape shape_;
};

}  // namespace

DecodeBuckets decode_buckets(int max_requests, int pages, int width) {
  DecodeBuckets b;
  b.width = width;
  // Every number up to 16, then four for each doubling.
  for (int n = 1; n < max_requests; n += n < 16 ? 1 : std::bit_floor(static_cast<unsigned>(n)) / 4)
    b.requests.push_back(n);
  b.requests.push_back(max_requests);
  for (int p = 64; p < pages; p *= 4) b.pages.push_back(p);
  b.pages.push_back(pages);
  return b;
}

void warm_up(Model& model, CachePools& pools, const EngineOptions& options, int most_drafts, MemoryPlan& plan) {
  Context& context = model.context();
  const auto begin = std::chrono::steady_clock::now();
  const int64_t page_tokens = pools.layout().page_tokens, context_length = model.config().max_position_embeddings;
  const auto pages =
      static_cast<int>(std::min<int64_t>((context_length + page_tokens - 1) / page_tokens + 1, pools.free_pages()));
  const auto rows = static_cast<int>(std::min<int64_t>({options.step_tokens, pages * page_tokens, context_length - 1}));
  // Of a caller that drafts more, longer steps are recorded when they come.
  constexpr int kMostDrafts = 7;
  const int drafts = std::min(options.speculate < 0 ? most_drafts : options.speculate, kMostDrafts);
  DecodeBuckets buckets = decode_buckets(options.max_requests, pages, 1 + drafts);
  model.set_decode_buckets(buckets);
  WarmUp work(model, pools);

  const bool records = model.records();
  model.set_recording(false);
  try {
    work.prompt(rows, pages);
    work.decode(options.max_requests, 1 + drafts, pages, false);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::out_of_memory) throw;
    fail(ErrorKind::out_of_memory,
         "{}; a step of {} rows, or one of {} requests, does not fit beside the cache of {} tokens: ask for fewer "
         "tokens in a step, fewer requests at once, or a smaller cache",
         e.what(), rows, options.max_requests, plan.cache_tokens);
  }
  model.set_recording(records);
  if (records) {
    context.fix_step_memory();
    const auto before = used_device_memory(context);
    for (const int n : buckets.requests) {
      model.set_recording(false);
      work.decode(n, 1, buckets.pages.front(), false);  // its kernels
      model.set_recording(true);
      for (const int width_pages : buckets.pages)
        for (int width = 1; width <= buckets.width; ++width) work.decode(n, width, width_pages, true);
    }
    plan.graphs = model.prepared();
    plan.graph_bytes = used_device_memory(context) - before;
  }
  context.reset_step();
  plan.steps = step_memory(context);
  plan.warm_up_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace hadal
