// A checkpoint with all that a model needs of it.
#pragma once

#include "checkpoint/checkpoint.h"

namespace hadal {

// Checkpoint::open, and where engram_token_map.npy is not there, the map that the checkpoint's tokenizer gives. Throws
// invalid_data when that one has another number of ids than the configuration says. Without a tokenizer the map stays empty.
// `reload`: with its pages read anew (Checkpoint::reload).
Checkpoint open_checkpoint(const std::filesystem::path& directory, bool reload = false);

}  // namespace hadal
