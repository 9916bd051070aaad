// The prefix cache's tier on disk: snapshots that outlive the process, in a BlockStore.
//
// A full page is an entry of its own under a key that chains over the pages before it: key(i) = hash(key(i - 1), token ids of
// page i), and key(0) is the hash of the store's identity (cache_identity.h). So prompts with a common beginning share its
// pages on disk as they do in memory. A state is an entry with what is left: the tokens behind the last full page, their rows,
// and the slot (rings, pending halves). It is written after its pages, and counts as used before them, so that eviction takes
// it first. Entries hold their token ids, and what is read is compared with the prompt: a key only finds, it proves nothing.
//
// One thread of its own reads and writes. The engine's thread copies what is to be written, and puts what was read into pages.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/block_store.h"
#include "state/request_state.h"

namespace hadal {

class DiskCache {
 public:
  // `wake` is called from the cache's thread whenever a Load is done. Throws as BlockStore does, and invalid_argument when
  // `limit` has no room for a single state.
  DiskCache(CachePools& pools, const std::filesystem::path& directory, const std::string& identity, int64_t limit,
            std::function<void()> wake);
  ~DiskCache();  // writes what still waits
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  using Usable = std::function<bool(int64_t length, int64_t floor)>;
  struct Match {
    int64_t length = 0;           // tokens; 0: nothing
    std::vector<BlockKey> pages;  // the full ones
    BlockKey state;
  };
  // The longest state that is a prefix of these tokens.
  Match find(std::span<const int32_t> tokens, const Usable& usable) const;

  // A match on its way from the disk.
  class Load {
   public:
    bool done() const { return done_; }
    // Once it is done: everything was there and undamaged. If not, find() does not find it any more.
    bool whole() const { return whole_; }
    int64_t length() const { return match_.length; }

   private:
    friend class DiskCache;
    Match match_;
    std::vector<int32_t> tokens_;
    std::vector<std::vector<std::byte>> pages_;
    std::vector<std::byte> state_;
    bool whole_ = false;
    std::atomic<bool> done_{false};
  };
  std::shared_ptr<Load> load(std::span<const int32_t> tokens, Match match);
  // What a whole Load has read, once, in pages of the pools; see Snapshot about `shared` and errors.
  Snapshot take(Load& load, const Snapshot* shared);
  int64_t pages_of(const Load& load) const;  // that take() needs at most
  // All of that at once, for who has nothing else to do: the longest prefix that is whole.
  std::optional<Snapshot> restore(std::span<const int32_t> tokens, const Usable& usable);

  // Copies what the disk does not have yet and leaves it to the cache's thread. When too much waits there, the snapshot is
  // left out and counted.
  void store(const Snapshot& snapshot);

  struct Stats {
    int64_t entries = 0, bytes = 0;  // on disk, of all identities
    int64_t written = 0;             // states
    int64_t evicted = 0, damaged = 0;
    int64_t failed = 0;   // writes that the system refused
    int64_t dropped = 0;  // states that were left out: too much waited, or they are larger than the limit
  };
  Stats stats() const;

 private:
  struct Write {
    std::vector<BlockKey> chain;                                     // all full pages
    std::vector<std::pair<BlockKey, std::vector<std::byte>>> pages;  // those that the disk does not have
    BlockKey key;
    // The state's payload, in three parts: fields and the tokens behind the last full page, the slot, the tokens' rows.
    std::vector<std::byte> head;
    std::shared_ptr<const std::vector<uint8_t>> slot;
    std::vector<uint8_t> tail_rows;
    size_t bytes = 0;  // of all that
  };
  struct State {
    BlockKey key;
    std::vector<int32_t> tail;  // tokens behind the last full page
    int64_t floor = 0;
    bool written = false;
  };
  struct KeyHash {
    size_t operator()(const BlockKey& key) const { return key.low; }
  };

  std::vector<BlockKey> chain(std::span<const int32_t> tokens) const;  // keys of the full pages, behind the root
  void index_states();
  void run();
  void read(Load& load);
  bool read_parts(Load& load);
  void write(Write& write);
  void touch_pages(const std::vector<BlockKey>& chain);
  void forget(BlockKind kind, const BlockKey& key);  // with mutex_ held
  State* find_state(const BlockKey& key);            // with mutex_ held
  void publish();

  CachePools& pools_;
  const int64_t page_tokens_;
  const BlockKey root_;
  BlockStore store_;  // of the cache's thread, once that runs
  const std::function<void()> wake_;
  std::string last_failure_;

  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  std::unordered_set<BlockKey, KeyHash> pages_;                       // written, or about to be
  std::unordered_map<BlockKey, std::vector<State>, KeyHash> states_;  // by the key of their last full page
  std::unordered_map<BlockKey, BlockKey, KeyHash> last_page_;         // of a state
  std::deque<std::shared_ptr<Load>> loads_;
  std::deque<Write> writes_;
  size_t waiting_bytes_ = 0;  // of writes_
  Stats stats_;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace hadal
