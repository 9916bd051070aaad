// How much memory the caches get: what was asked for, or as much as the device has to spare.
#pragma once

#include "checkpoint/checkpoint.h"
#include "hadal/engine.h"
#include "state/cache_pools.h"

namespace hadal {

// Throws out_of_memory, with the numbers, when `options` ask for more than is free, or when not even a page for each request
// is. The weights that a backend holds itself are placed already and not part of what is free. `most_drafts`: as for warm_up.
MemoryPlan plan_memory(const CacheLayout& layout, const EngineOptions& options, int most_drafts, const Context& context,
                       const Checkpoint& checkpoint);
// The same from numbers.
MemoryPlan plan_memory(const CacheLayout& layout, const EngineOptions& options, int64_t free, int64_t mapped_weights);

}  // namespace hadal
