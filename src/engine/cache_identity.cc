#include "engine/cache_identity.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "checkpoint/checksum.h"
#include "checkpoint/mapped_file.h"
#include "ops/cpu/context.h"

namespace hadal {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = 65536, kPieces = 64;  // of a shard's data

std::string hash_of(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.hex();
}

std::string hash_of_file(const fs::path& path) { return hash_of(MappedFile(path).bytes()); }

// The header, and pieces of the data evenly spread: a fine-tuned checkpoint has the same names and shapes.
std::string sample(const SafetensorsFile& shard) {
  const std::span<const std::byte> image = shard.image();
  Checksum sum;
  sum.add(image.first(shard.header_bytes()));
  const std::span<const std::byte> weights = image.subspan(shard.header_bytes());
  if (weights.size() <= kPiece * kPieces) {
    sum.add(weights);
  } else {
    for (size_t i = 0; i < kPieces; ++i)
      sum.add(weights.subspan((weights.size() - kPiece) / (kPieces - 1) * i, kPiece));
  }
  return sum.hex();
}

}  // namespace

std::string cache_identity(const Checkpoint& checkpoint, Backend backend, const Context& context,
                           const CacheLayout& layout, PrefillMode mode) {
  std::string text = fmt::format("program {}\n", hash_of_file("/proc/self/exe"));
  const auto* const cpu = dynamic_cast<const CpuContext*>(&context);
  text += fmt::format("backend {}, {}\nnumerics {}\nprefill {}\n", to_string(backend),
                      cpu != nullptr ? std::string(to_string(cpu->isa())) : context.device_name(),
                      to_string(context.numerics()), to_string(mode));
  text += fmt::format("caches {} layers, {} draft stages, window {}, head {}, index {}, {} tokens a page, owners",
                      layout.layers, layout.draft_stages, layout.window, layout.head_dim, layout.index_dim,
                      layout.page_tokens);
  for (const CacheLayout::Owner& owner : layout.owners) text += fmt::format(" {}/{}", owner.layer, owner.ratio);
  text += fmt::format("\nconfiguration {}\ntoken map {}\n", hash_of_file(checkpoint.directory() / "config.json"),
                      hash_of(std::as_bytes(checkpoint.engram_token_map())));
  for (const SafetensorsFile& shard : checkpoint.shards()) {
    struct stat s {};
    if (::stat(shard.path().c_str(), &s) != 0)
      fail(ErrorKind::io, "cannot look at {}: {}", shard.path().string(), std::generic_category().message(errno));
    text += fmt::format("shard {} {} bytes, changed {}.{:09}, sample {}\n", shard.path().filename().string(), s.st_size,
                        s.st_mtim.tv_sec, s.st_mtim.tv_nsec, sample(shard));
  }
  return text;
}

}  // namespace hadal
