#include "engine/warm_up.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <numeric>
#include <set>

#include "base/error.h"
#include "engine/backend.h"

namespace hadal {
namespace {

using deepseek_v41::Model;
using deepseek_v41::Step;

class WarmUp {
 public:
  WarmUp(Model& model, CachePools& pools, const DecodeBuckets& buckets, int max_requests)
      : model_(model), pools_(pools), shape_(model.step_shape()), buckets_(buckets), max_requests_(max_requests) {}

  // A step of one prompt, or a decode step of that size: run and dropped again, or recorded.
  void prompt(int rows, int pages) {
    std::deque<RequestState> states;
    propose(states, rows);
    StepShape shape = shape_;
    shape.least_pages = pages;
    run(states, LogitsWanted::last, shape, false);
  }
  void decode(DecodeBuckets::Size size, int pages, bool record) {
    const int requests = std::min({size.rows, size.segments, max_requests_});
    std::deque<RequestState> states;
    for (int i = 0; i < requests; ++i) propose(states, size.rows / requests + (i < size.rows % requests ? 1 : 0));
    const DecodeBuckets only{{size}, buckets_.pages};
    StepShape shape = shape_;
    shape.buckets = &only;
    shape.least_pages = pages;
    run(states, LogitsWanted::all, shape, record);
  }

 private:
  void propose(std::deque<RequestState>& states, int rows) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    std::iota(tokens.begin(), tokens.end(), 0);
    const V41Config& c = model_.config();
    for (int32_t& t : tokens) {
      t %= c.vocab_size;
      if (t == c.image_token_id) t = 0;
    }
    states.emplace_back(pools_);
    states.back().propose(tokens);
  }

  void run(std::deque<RequestState>& states, LogitsWanted wanted, const StepShape& shape, bool record) {
    Context& context = model_.context();
    context.reset_step();
    std::vector<SegmentRequest> requests;
    for (RequestState& state : states) requests.push_back({&state, wanted});
    StepPlan plan(context, shape, requests);
    if (record) return model_.prepare(plan);
    const Step step = model_.forward(plan);
    model_.write_rings(plan, step, {});
    context.wait();
  }

  Model& model_;
  CachePools& pools_;
  const StepShape shape_;
  const DecodeBuckets& buckets_;
  const int max_requests_;
};

}  // namespace

DecodeBuckets decode_buckets(int max_requests, int pages, int width) {
  DecodeBuckets b;
  // Rows: every number up to 16, then four for each doubling.
  std::set<int> rows = {max_requests, max_requests * width};
  for (int n = 1; n < max_requests * width;
       n += n < 16 ? 1 : static_cast<int>(std::bit_floor(static_cast<unsigned>(n))) / 4)
    rows.insert(n);
  // Segments: of every step whose rows are filled up to this size, a request may have one row, and so has what fills up.
  // Many rows of few requests have a size of their own, since attention has a kernel for four rows of a request and more.
  constexpr int kManyRows = 32, kOfFew = 4;
  int before = 0;
  for (const int n : rows) {
    const int segments = before < max_requests ? n : max_requests + n - before - 1;
    if (width >= kOfFew && n > kManyRows && n / kOfFew < segments) b.sizes.push_back({n, n / kOfFew});
    b.sizes.push_back({n, segments});
    before = n;
  }
  for (int p = 64; p < pages; p *= 4) b.pages.push_back(p);
  b.pages.push_back(pages);
  return b;
}

int decode_width(const EngineOptions& options, int most_drafts) {
  // Of a caller that drafts more, longer steps are recorded when they come.
  constexpr int kMostDrafts = 7;
  return 1 + std::min(options.speculate < 0 ? most_drafts : options.speculate, kMostDrafts);
}

void warm_up(Model& model, CachePools& pools, const EngineOptions& options, int most_drafts, MemoryPlan& plan) {
  Context& context = model.context();
  const auto begin = std::chrono::steady_clock::now();
  const int64_t page_tokens = pools.layout().page_tokens, context_length = model.config().max_position_embeddings;
  const auto pages =
      static_cast<int>(std::min<int64_t>((context_length + page_tokens - 1) / page_tokens + 1, pools.free_pages()));
  const auto rows = static_cast<int>(std::min<int64_t>({options.step_tokens, pages * page_tokens, context_length - 1}));
  const DecodeBuckets buckets = decode_buckets(options.max_requests, pages, decode_width(options, most_drafts));
  model.set_decode_buckets(buckets);
  WarmUp work(model, pools, buckets, options.max_requests);

  const bool records = model.records();
  model.set_recording(false);
  try {
    work.prompt(rows, pages);
    // All of them, not only the largest: which kernels run, and what memory they need, changes with the size.
    for (const DecodeBuckets::Size& size : buckets.sizes)
      for (const int width : {buckets.pages.front(), pages}) work.decode(size, width, false);
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
    for (const DecodeBuckets::Size& size : buckets.sizes)
      for (const int width : buckets.pages) work.decode(size, width, true);
    plan.graphs = model.prepared();
    plan.graph_bytes = used_device_memory(context) - before;
  }
  context.reset_step();
  plan.steps = step_memory(context);
  plan.warm_up_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace hadal
