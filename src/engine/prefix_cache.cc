#include "engine/prefix_cache.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace hadal {

struct PrefixCache::Node {
  Node* parent = nullptr;
  std::vector<int32_t> edge;                                    // tokens between the parent and this node
  int64_t length = 0;                                           // tokens from the root
  std::unordered_map<int32_t, std::unique_ptr<Node>> children;  // by the first token of their edge
  std::optional<Snapshot> snapshot;
  uint64_t used = 0;  // key in by_use_
};

PrefixCache::PrefixCache(CachePools& pools, size_t bytes)
    : pools_(pools), limit_(bytes), root_(std::make_unique<Node>()) {}
PrefixCache::~PrefixCache() { clear(); }

PrefixCache::Place PrefixCache::walk(std::span<const int32_t> tokens) const {
  Place place{root_.get(), 0};
  while (place.tokens < static_cast<int64_t>(tokens.size())) {
    const auto rest = tokens.subspan(static_cast<size_t>(place.tokens));
    const auto next = place.node->children.find(rest.front());
    if (next == place.node->children.end()) break;
    const std::vector<int32_t>& edge = next->second->edge;
    const auto common = std::mismatch(edge.begin(), edge.end(), rest.begin(), rest.end()).first - edge.begin();
    place.node = next->second.get();
    place.tokens += common;
    if (common < static_cast<int64_t>(edge.size())) break;
  }
  return place;
}

PrefixCache::Match PrefixCache::find(std::span<const int32_t> tokens,
                                     const std::function<bool(const Snapshot&)>& usable) {
  const Place place = walk(tokens);
  for (Node* node = place.node; node != nullptr; node = node->parent) {
    if (node->length > place.tokens || !node->snapshot || !usable(*node->snapshot)) continue;
    touch(*node);
    return {place.tokens, &*node->snapshot};
  }
  return {place.tokens, nullptr};
}

bool PrefixCache::contains(std::span<const int32_t> tokens, int64_t floor) const {
  const Place place = walk(tokens);
  return place.node->length == static_cast<int64_t>(tokens.size()) && place.tokens == place.node->length &&
         place.node->snapshot && place.node->snapshot->floor() == floor;
}

void PrefixCache::insert(Snapshot snapshot) {
  const size_t bytes = snapshot.bytes();
  if (bytes > limit_) return;
  const std::span<const int32_t> tokens = snapshot.tokens();
  HADAL_CHECK(!tokens.empty());
  // Eviction comes first: it may remove nodes.
  while (stats_.bytes + bytes > limit_) evict(*by_use_.begin()->second);

  auto [node, matched] = walk(tokens);
  if (matched < node->length) {  // split the edge where the tokens part
    Node* const parent = node->parent;
    std::unique_ptr<Node>& place = parent->children.at(node->edge.front());
    auto middle = std::make_unique<Node>();
    const auto keep = static_cast<size_t>(matched - parent->length);
    middle->parent = parent;
    middle->edge.assign(node->edge.begin(), node->edge.begin() + static_cast<std::ptrdiff_t>(keep));
    middle->length = matched;
    node->edge.erase(node->edge.begin(), node->edge.begin() + static_cast<std::ptrdiff_t>(keep));
    node->parent = middle.get();
    middle->children[node->edge.front()] = std::move(place);
    place = std::move(middle);
    node = place.get();
  }
  if (matched < static_cast<int64_t>(tokens.size())) {
    auto leaf = std::make_unique<Node>();
    leaf->parent = node;
    leaf->edge.assign(tokens.begin() + matched, tokens.end());
    leaf->length = static_cast<int64_t>(tokens.size());
    Node* const added = leaf.get();
    node->children[leaf->edge.front()] = std::move(leaf);
    node = added;
  }
  if (node->snapshot) {
    stats_.bytes -= node->snapshot->bytes();
    --stats_.snapshots;
  }
  node->snapshot = std::move(snapshot);
  stats_.bytes += bytes;
  ++stats_.snapshots;
  touch(*node);
}

void PrefixCache::touch(Node& node) {
  by_use_.erase(node.used);
  node.used = ++clock_;
  by_use_[node.used] = &node;
}

void PrefixCache::evict(Node& node) {
  by_use_.erase(node.used);
  stats_.bytes -= node.snapshot->bytes();
  --stats_.snapshots;
  ++stats_.evictions;
  node.snapshot.reset();
  remove(node);
}

void PrefixCache::remove(Node& start) {
  Node* node = &start;
  while (node->parent != nullptr && !node->snapshot && node->children.empty()) {
    Node* const parent = node->parent;
    parent->children.erase(node->edge.front());
    node = parent;
  }
  if (node->parent == nullptr || node->snapshot || node->children.size() != 1) return;
  // One way on: the node is no branch any more.
  std::unique_ptr<Node> child = std::move(node->children.begin()->second);
  child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
  child->parent = node->parent;
  std::unique_ptr<Node>& place = node->parent->children.at(node->edge.front());
  place = std::move(child);
}

bool PrefixCache::make_room(int64_t pages) {
  while (pools_.free_pages() < pages) {
    // Only ends give whole pages back: those of a node further up are shared by the ends below it.
    const auto end =
        std::find_if(by_use_.begin(), by_use_.end(), [](const auto& e) { return e.second->children.empty(); });
    if (end == by_use_.end()) return false;
    evict(*end->second);
  }
  return true;
}

void PrefixCache::clear() {
  by_use_.clear();
  // Not by the nodes' own destructors: a conversation of many turns is a path of many nodes.
  std::vector<std::unique_ptr<Node>> rest;
  rest.push_back(std::exchange(root_, std::make_unique<Node>()));
  while (!rest.empty()) {
    const std::unique_ptr<Node> node = std::move(rest.back());
    rest.pop_back();
    for (auto& [token, child] : node->children) rest.push_back(std::move(child));
  }
  stats_.snapshots = 0;
  stats_.bytes = 0;
}

int64_t PrefixCache::pages() const {
  std::unordered_set<int32_t> distinct;
  for (const auto& [used, node] : by_use_)
    distinct.insert(node->snapshot->pages().begin(), node->snapshot->pages().end());
  return static_cast<int64_t>(distinct.size());
}

}  // namespace hadal
