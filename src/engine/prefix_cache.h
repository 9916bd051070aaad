// Prefixes that earlier requests have run: a radix tree over token ids, with snapshots at some of its nodes.
//
// A request continues from the longest snapshot that is a prefix of its prompt and runs the rest, so it sees the very state
// that a cold run would have come to. Snapshots share their pages with each other and with running requests (counted
// references); what each holds by itself is the slot (rings, pending halves) in host memory and a last page that is not full.
// Everything here can be evicted at any moment: whoever continued from a snapshot has its own references.       spec 10.2
//
// Token ids are the whole key: a tree belongs to one engine, whose checkpoint, numeric mode, prefill mode and kernels never
// change. What may differ between requests, the cut of a bounded prompt, is for the caller of find() to judge. Where states
// outlive the engine all of that is part of the key (cache_identity.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "state/request_state.h"

namespace hadal {

class PrefixCache {
 public:
  // Holds at most `bytes` of host memory in snapshots.
  PrefixCache(CachePools& pools, size_t bytes);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Match {
    int64_t tokens = 0;                  // common prefix with the tree
    const Snapshot* snapshot = nullptr;  // the longest usable one within it; valid until the next change
  };
  // The snapshot that is returned counts as used now.
  Match find(std::span<const int32_t> tokens, const std::function<bool(const Snapshot&)>& usable);

  bool contains(std::span<const int32_t> tokens, int64_t floor) const;
  // Replaces a snapshot of the same tokens. May evict others, and does not keep one that is larger than all memory.
  void insert(Snapshot snapshot);

  // Evicts, the longest unused ends first, until so many pages are free. False when everything is evicted and they are not.
  bool make_room(int64_t pages);
  void clear();

  struct Stats {
    int64_t snapshots = 0;
    size_t bytes = 0;
    int64_t evictions = 0;
  };
  const Stats& stats() const { return stats_; }
  // Distinct pages that snapshots hold.
  int64_t pages() const;

 private:
  struct Node;
  // Deepest node whose path begins with, or is, the matched tokens, and their number.
  struct Place {
    Node* node;
    int64_t tokens;
  };
  Place walk(std::span<const int32_t> tokens) const;
  void touch(Node& node);
  void evict(Node& node);
  void remove(Node& start);  // and ancestors that nothing needs any more

  CachePools& pools_;
  size_t limit_;
  std::unique_ptr<Node> root_;
  uint64_t clock_ = 0;
  std::map<uint64_t, Node*> by_use_;  // nodes with a snapshot, the longest unused first
  Stats stats_;
};

}  // namespace hadal
