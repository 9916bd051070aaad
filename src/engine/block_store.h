// A folder of immutable entries under content keys, with a limit on its size: what the prefix cache on disk stands on.
//
//   DIR/lock                     held for as long as a store is open; a second one is refused
//   DIR/<identity>/about.txt     what entries of this folder belong to, for people
//   DIR/<identity>/<key>.page    entries: a header with magic, version, kind, identity, key, length and checksum, the payload
//   DIR/<identity>/<key>.state
//
// An entry is written under a temporary name and renamed, so a process that dies at any moment leaves whole entries and at
// most a temporary file, which the next one removes. Nothing is synced to the disk: what a power failure tears, the
// checksum finds. Entries of other identities are never read, but they count, and the longest unused go first whoever they
// belong to. Times of files are times of use, so the order survives a restart. Files of other names are left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hadal {

struct BlockKey {
  uint64_t high = 0, low = 0;

  // XXH3 of 128 bits over `before` and the bytes.
  static BlockKey of(const BlockKey& before, std::span<const std::byte> bytes);
  static BlockKey of(std::string_view text);
  static std::optional<BlockKey> parse(std::string_view hex);
  std::string hex() const;
  bool operator==(const BlockKey&) const = default;
};

enum class BlockKind : uint8_t { page, state };

class BlockStore {
 public:
  // `identity` is a text that names everything that the bits of an entry depend on; `limit` counts the bytes of all entries.
  // Creates the folders and sees that an entry of `probe_bytes` can be written. Throws io with the path and the reason: no
  // folder, not writable, full, or in use by another process.
  BlockStore(const std::filesystem::path& directory, const std::string& identity, int64_t limit, size_t probe_bytes);
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  bool contains(BlockKind kind, const BlockKey& key) const { return entries_.contains({0, kind, key}); }
  std::vector<BlockKey> keys(BlockKind kind) const;
  // The whole payload, checked. Nothing when there is no such entry; one that is damaged is reported, counted and removed.
  std::optional<std::vector<std::byte>> read(BlockKind kind, const BlockKey& key);
  // The payload's first bytes, at most so many; only the header around them is checked.
  std::optional<std::vector<std::byte>> read_head(BlockKind kind, const BlockKey& key, size_t most);
  // Takes an entry out whose payload turned out wrong: `reason` as in "holds other tokens".
  void reject(BlockKind kind, const BlockKey& key, std::string_view reason);

  // Evicts the longest unused entries until this one fits, and counts as a use. Throws io.
  void write(BlockKind kind, const BlockKey& key, std::span<const std::byte> payload);
  // Counts the entry as used now.
  void touch(BlockKind kind, const BlockKey& key);

  // Told of every entry of this identity that is gone: evicted, damaged or removed by somebody else.
  void on_removal(std::function<void(BlockKind, const BlockKey&)> told) { removed_ = std::move(told); }

  static int64_t file_bytes(size_t payload);
  int64_t limit() const { return limit_; }

  struct Stats {
    int64_t entries = 0, bytes = 0;    // of all identities
    int64_t evicted = 0, damaged = 0;  // since the store was opened
    int64_t left_alone = 0;            // files that are not the store's
  };
  const Stats& stats() const { return stats_; }

 private:
  struct Header;
  struct Id {
    int folder = 0;  // index into folders_; 0: this identity's
    BlockKind kind{};
    BlockKey key;
    bool operator==(const Id&) const = default;
  };
  struct Hash {
    size_t operator()(const Id& id) const { return id.key.low ^ static_cast<size_t>(id.folder); }
  };
  struct Entry {
    int64_t bytes = 0;
    std::list<Id>::iterator use;
  };

  std::filesystem::path path(const Id& id) const;
  void scan();
  void scan_folder(int folder, std::multimap<int64_t, std::pair<Id, int64_t>>& found);
  void make_room(int64_t bytes);
  void add(const Id& id, int64_t bytes);
  void forget(const Id& id);
  void remove(const Id& id);
  Header header_of(const Id& id, size_t payload) const;
  std::optional<std::vector<std::byte>> read(const Id& id, size_t most, bool whole);

  std::filesystem::path directory_;
  BlockKey identity_;
  int64_t limit_;
  int lock_ = -1;
  std::vector<std::filesystem::path> folders_;
  std::list<Id> by_use_;  // the longest unused first
  std::unordered_map<Id, Entry, Hash> entries_;
  int64_t clock_ = 0;  // nanoseconds; the last time that a file was given
  std::function<void(BlockKind, const BlockKey&)> removed_;
  Stats stats_;
};

}  // namespace hadal
