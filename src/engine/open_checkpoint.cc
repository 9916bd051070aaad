#include "engine/open_checkpoint.h"

#include "base/error.h"
#include "text/engram_token_map.h"

namespace hadal {

Checkpoint open_checkpoint(const std::filesystem::path& directory, bool reload, bool ahead) {
  Checkpoint checkpoint = Checkpoint::open(directory);
  if (reload) checkpoint.reload();
  if (ahead) checkpoint.map_ahead();
  const V41Config& config = checkpoint.config();
  if (config.engram_layer_ids.empty() || !checkpoint.engram_token_map().empty() ||
      !std::filesystem::exists(directory / "tokenizer.json"))
    return checkpoint;
  std::vector<int32_t> map = text::derive_engram_token_map(text::Tokenizer::load(directory), config.vocab_size);
  const int have = text::engram_token_map_size(map);
  if (have != config.engram_compressed_vocab_size)
    fail(ErrorKind::invalid_data,
         "{}: the tokenizer gives {} compressed ids for Engram, engram_compressed_vocab_size is {}; put the map that "
         "the model was "
         "trained with into engram_token_map.npy",
         directory.string(), have, config.engram_compressed_vocab_size);
  checkpoint.set_engram_token_map(std::move(map));
  return checkpoint;
}

}  // namespace hadal
