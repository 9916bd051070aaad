// What the bits of a cached state depend on besides its tokens.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "engine/backend.h"
#include "state/request_state.h"

namespace hadal {

// A text of lines "name value": the checkpoint (its JSON files, its token map, and of every shard the name, size, time of
// change, header and a sample of the weights), the numeric mode, the prefill mode, the backend with the instruction set or
// card that computes, the shapes of the caches, and this program, whose kernels another build may have changed. Two texts
// are equal only where a prompt gives the same bits. Reads up to 4 MB of each shard. Throws io.
std::string cache_identity(const Checkpoint& checkpoint, Backend backend, const Context& context,
                           const CacheLayout& layout, PrefillMode mode);

}  // namespace hadal
