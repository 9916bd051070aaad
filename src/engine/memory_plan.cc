#include "engine/memory_plan.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/host_memory.h"
#include "engine/backend.h"
#include "engine/warm_up.h"

namespace hadal {
namespace {

constexpr int64_t kTokensEach = 4096;  // of a running request, when nothing is asked for
constexpr double kMostShare = 0.9;     // of what is free: steps need memory too, and so do others

// Of CUDA graphs, which lie beside what the context books: 280 KB a layer and forward pass, with its share of the commits,
// measured on the embedded model. Of the release it is less: 740 MB for 200 graphs, a half of them forward passes, are 185.
int64_t graph_bytes(const CacheLayout& layout, const EngineOptions& options, int most_drafts) {
  if (!options.cuda_graphs) return 0;
  constexpr int kUsualPages = 1024;
  const DecodeBuckets buckets = decode_buckets(options.max_requests, kUsualPages, decode_width(options, most_drafts));
  return static_cast<int64_t>(buckets.sizes.size() * buckets.pages.size()) * layout.layers * (280 << 10);
}

double mb(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

MemoryPlan plan_memory(const CacheLayout& layout, const EngineOptions& options, int most_drafts, const Context& context,
                       const Checkpoint& checkpoint) {
  if (const auto device = free_device_memory(context))
    return plan_memory(layout, options, std::max<int64_t>(0, *device - graph_bytes(layout, options, most_drafts)), 0);
  int64_t weights = 0;
  for (const SafetensorsFile& shard : checkpoint.shards()) weights += static_cast<int64_t>(shard.image().size());
  return plan_memory(layout, options, read_host_memory().usable(), weights);
}

MemoryPlan plan_memory(const CacheLayout& layout, const EngineOptions& options, int64_t free, int64_t mapped_weights) {
  MemoryPlan plan;
  plan.free = free;
  plan.weights = mapped_weights;
  plan.windows = layout.bytes_per_slot() * options.max_requests;
  plan.snapshots = options.prefix_cache ? options.prefix_cache_mib << 20 : 0;
  const int64_t page = layout.bytes_per_page(), tokens = layout.page_tokens;
  const int64_t asked = options.cache_tokens > 0 ? options.cache_tokens : kTokensEach * options.max_requests;
  // Every request may end in the middle of a page.
  int64_t pages = (asked + tokens - 1) / tokens + options.max_requests;
  if (options.cache_tokens > 0) {
    if (plan.windows + pages * page > free)
      fail(ErrorKind::out_of_memory,
           "a cache of {} tokens takes {:.1f} MB and the windows of {} requests {:.1f} MB; {:.1f} MB are free", asked,
           mb(pages * page), options.max_requests, mb(plan.windows), mb(free));
  } else {
    // A model that is larger than memory is read from the disk again and again in any case.
    const auto budget =
        static_cast<int64_t>(kMostShare * static_cast<double>(std::max(free - mapped_weights, free / 4)));
    const int64_t fit = std::max<int64_t>(0, budget - plan.windows - plan.snapshots) / page;
    if (fit < 2 * options.max_requests)
      fail(ErrorKind::out_of_memory,
           "the windows of {} requests take {:.1f} MB, snapshots of prefixes up to {:.1f} MB, two pages of {} tokens "
           "for each {:.1f} MB; the model takes {:.1f} MB of {:.1f} MB that are free. Ask for fewer requests at once",
           options.max_requests, mb(plan.windows), mb(plan.snapshots), tokens, mb(2 * page * options.max_requests),
           mb(mapped_weights), mb(free));
    pages = std::min(pages, fit);
  }
  plan.cache = pages * page;
  plan.cache_tokens = pages * tokens;
  return plan;
}

std::string to_string(const MemoryPlan& p) {
  std::string text = fmt::format(
      "cache {:.1f} MB for {} tokens, windows {:.1f} MB, snapshots up to {:.1f} MB, of {:.1f} MB that are free{}",
      mb(p.cache), p.cache_tokens, mb(p.windows), mb(p.snapshots), mb(p.free),
      p.weights > 0 ? fmt::format(" ({:.1f} MB for the model)", mb(p.weights)) : "");
  if (p.host_tables > 0) text += fmt::format("; Engram tables {:.1f} MB in pinned host memory", mb(p.host_tables));
  if (p.steps > 0) text += fmt::format("; step memory {:.1f} MB", mb(p.steps));
  if (p.graphs > 0) text += fmt::format(", {} CUDA graphs {:.1f} MB", p.graphs, mb(p.graph_bytes));
  if (p.warm_up_seconds > 0) text += fmt::format("; warmed up in {:.2f} s", p.warm_up_seconds);
  return text;
}

}  // namespace hadal
