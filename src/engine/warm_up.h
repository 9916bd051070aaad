// What an engine on a device does before its first request: the largest steps run once, so that step memory has the size
// that it needs and every kernel is loaded, and decode steps are recorded.
#pragma once

#include "hadal/engine.h"
#include "models/deepseek_v41/model.h"

namespace hadal {

// Sizes that decode steps are filled up to: of so many requests at once, each with up to `width` rows (a token and its
// drafts) in any mixture, and with so many pages.
DecodeBuckets decode_buckets(int max_requests, int pages, int width);

// Rows of a request that steps are recorded for; `most_drafts` is the model's or the drafter's.
int decode_width(const EngineOptions& options, int most_drafts);

// `pools` are those of the engine, none of them in use; they are afterwards as they were, but for the contents of free pages.
// Writes what it took into `plan`. Throws out_of_memory, naming what to ask for less of, when a step does not fit.
void warm_up(deepseek_v41::Model& model, CachePools& pools, const EngineOptions& options, int most_drafts,
             MemoryPlan& plan);

}  // namespace hadal
