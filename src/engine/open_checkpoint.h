// A checkpoint with all that a model needs of it.
#pragma once

#include "checkpoint/checkpoint.h"

namespace hadal {

// Checkpoint::open, and where engram_token_map.npy is not there, the map that the checkpoint's tokenizer gives. Throws
// invalid_data when that one has another number of ids than the configuration says. Without a tokenizer the map stays empty.
// `reload`: with its pages read anew (Checkpoint::reload). `ahead`: what a device takes is read in the background from now on
// (Checkpoint::map_ahead), so that the device packs one tensor while the next ones come from the disk.
Checkpoint open_checkpoint(const std::filesystem::path& directory, bool reload = false, bool ahead = false);

}  // namespace hadal
