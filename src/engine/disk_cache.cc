#include "engine/disk_cache.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace hadal {
namespace {

// What may wait to be written: more than a burst of long prompts, little beside a model.
constexpr size_t kMostWaiting = size_t{256} << 20;

// Begins the payload of a state; tokens behind the last full page, the slot and their rows follow.
struct StateHead {
  int64_t length, prompt_end, floor;
  uint32_t mode, tail;
};

std::span<const std::byte> bytes_of(std::span<const int32_t> tokens) { return std::as_bytes(tokens); }

BlockKey state_key(const BlockKey& last_page, std::span<const int32_t> tail, int64_t floor) {
  return BlockKey::of(BlockKey::of(last_page, bytes_of(tail)), std::as_bytes(std::span(&floor, 1)));
}

}  // namespace

DiskCache::DiskCache(CachePools& pools, const std::filesystem::path& directory, const std::string& identity,
                     int64_t limit, std::function<void()> wake)
    : pools_(pools),
      page_tokens_(pools.layout().page_tokens),
      root_(BlockKey::of(identity)),
      store_(directory, identity, limit, pools.slot_bytes()),
      wake_(std::move(wake)) {
  const int64_t least =
      BlockStore::file_bytes(sizeof(StateHead) + pools_.slot_bytes() +
                             static_cast<size_t>(page_tokens_) * sizeof(int32_t) + pools_.page_bytes(page_tokens_));
  if (limit < least)
    fail(ErrorKind::invalid_argument, "the prefix cache on disk may hold {} bytes, one state of this model takes {}",
         limit, least);
  for (const BlockKey& key : store_.keys(BlockKind::page)) pages_.insert(key);
  index_states();
  store_.on_removal([this](BlockKind kind, const BlockKey& key) {
    const std::lock_guard lock(mutex_);
    forget(kind, key);
  });
  publish();
  thread_ = std::thread([this] { run(); });
}

DiskCache::~DiskCache() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::vector<BlockKey> DiskCache::chain(std::span<const int32_t> tokens) const {
  std::vector<BlockKey> keys;
  BlockKey key = root_;
  const auto page = static_cast<size_t>(page_tokens_);
  for (size_t at = 0; at + page <= tokens.size(); at += page)
    keys.push_back(key = BlockKey::of(key, bytes_of(tokens.subspan(at, page))));
  return keys;
}

// A state's head says where it belongs: the key of its last full page, and the tokens behind.
void DiskCache::index_states() {
  const size_t most = sizeof(BlockKey) + sizeof(StateHead) + static_cast<size_t>(page_tokens_) * sizeof(int32_t);
  for (const BlockKey& key : store_.keys(BlockKind::state)) {
    const auto head = store_.read_head(BlockKind::state, key, most);
    if (!head) continue;
    BlockKey last;
    StateHead fields{};
    const size_t fixed = sizeof last + sizeof fields;
    if (head->size() >= fixed) {
      std::memcpy(&last, head->data(), sizeof last);
      std::memcpy(&fields, head->data() + sizeof last, sizeof fields);
    }
    State state{key, {}, fields.floor, true};
    if (head->size() >= fixed && fields.tail < page_tokens_ && fixed + fields.tail * sizeof(int32_t) <= head->size()) {
      state.tail.resize(fields.tail);
      std::memcpy(state.tail.data(), head->data() + fixed, fields.tail * sizeof(int32_t));
    }
    if (state_key(last, state.tail, state.floor) != key) {
      store_.reject(BlockKind::state, key, "is damaged: its tokens are not those of its name");
      continue;
    }
    states_[last].push_back(std::move(state));
    last_page_[key] = last;
  }
}

DiskCache::Match DiskCache::find(std::span<const int32_t> tokens, const Usable& usable) const {
  std::vector<BlockKey> keys = chain(tokens);
  const std::lock_guard lock(mutex_);
  const auto end = std::find_if(keys.begin(), keys.end(), [&](const BlockKey& k) { return !pages_.contains(k); });
  keys.erase(end, keys.end());
  for (;; keys.pop_back()) {
    const auto here = states_.find(keys.empty() ? root_ : keys.back());
    const State* best = nullptr;
    const auto begin = static_cast<int64_t>(keys.size()) * page_tokens_;
    const std::span<const int32_t> rest = tokens.subspan(static_cast<size_t>(begin));
    if (here != states_.end())
      for (const State& s : here->second) {
        const auto length = begin + static_cast<int64_t>(s.tail.size());
        if (!s.written || s.tail.size() > rest.size() || !std::equal(s.tail.begin(), s.tail.end(), rest.begin()) ||
            !usable(length, s.floor) || (best != nullptr && best->tail.size() >= s.tail.size()))
          continue;
        best = &s;
      }
    if (best != nullptr) return {begin + static_cast<int64_t>(best->tail.size()), std::move(keys), best->key};
    if (keys.empty()) return {};
  }
}

std::shared_ptr<DiskCache::Load> DiskCache::load(std::span<const int32_t> tokens, Match match) {
  auto load = std::make_shared<Load>();
  const auto prefix = tokens.first(static_cast<size_t>(match.length));
  load->tokens_.assign(prefix.begin(), prefix.end());
  load->match_ = std::move(match);
  {
    const std::lock_guard lock(mutex_);
    loads_.push_back(load);
  }
  changed_.notify_all();
  return load;
}

std::optional<Snapshot> DiskCache::restore(std::span<const int32_t> tokens, const Usable& usable) {
  while (true) {
    Match match = find(tokens, usable);
    if (match.length == 0) return {};
    const std::shared_ptr<Load> reading = load(tokens, std::move(match));
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return reading->done(); });
    }
    if (reading->whole()) return take(*reading, nullptr);
  }
}

int64_t DiskCache::pages_of(const Load& load) const { return (load.match_.length + page_tokens_ - 1) / page_tokens_; }

Snapshot DiskCache::take(Load& load, const Snapshot* shared) {
  HADAL_CHECK(load.done() && load.whole());
  StateHead head{};
  const std::byte* at = load.state_.data() + sizeof(BlockKey);
  std::memcpy(&head, at, sizeof head);
  at += sizeof head + head.tail * sizeof(int32_t);
  const auto* slot = reinterpret_cast<const uint8_t*>(at);
  std::vector<const uint8_t*> pages;
  pages.reserve(load.pages_.size() + 1);
  for (const auto& page : load.pages_)
    pages.push_back(reinterpret_cast<const uint8_t*>(page.data()) +
                    static_cast<size_t>(page_tokens_) * sizeof(int32_t));
  if (head.tail > 0) pages.push_back(slot + pools_.slot_bytes());
  Snapshot::Stored stored{std::move(load.tokens_),
                          head.prompt_end,
                          head.floor,
                          static_cast<PrefillMode>(head.mode),
                          {slot, slot + pools_.slot_bytes()},
                          std::move(pages)};
  return {pools_, std::move(stored), shared};
}

void DiskCache::store(const Snapshot& snapshot) {
  const std::span<const int32_t> tokens = snapshot.tokens();
  Write write;
  write.chain = chain(tokens);
  const auto full = write.chain.size() * static_cast<size_t>(page_tokens_);
  const BlockKey last = write.chain.empty() ? root_ : write.chain.back();
  const std::span<const int32_t> tail = tokens.subspan(full);
  write.key = state_key(last, tail, snapshot.floor());
  const size_t page_payload = static_cast<size_t>(page_tokens_) * sizeof(int32_t) + pools_.page_bytes(page_tokens_);
  const size_t tail_rows = pools_.page_bytes(static_cast<int64_t>(tail.size()));
  const size_t state_payload = sizeof last + sizeof(StateHead) + tail.size_bytes() + pools_.slot_bytes() + tail_rows;

  std::vector<size_t> missing;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < write.chain.size(); ++i)
      if (!pages_.contains(write.chain[i])) missing.push_back(i);
    if (missing.empty() && last_page_.contains(write.key)) return;
    write.bytes = missing.size() * page_payload + state_payload;
    const int64_t on_disk = BlockStore::file_bytes(page_payload) * static_cast<int64_t>(write.chain.size()) +
                            BlockStore::file_bytes(state_payload);
    if (on_disk > store_.limit() || (!writes_.empty() && waiting_bytes_ + write.bytes > kMostWaiting)) {
      ++stats_.dropped;
      return;
    }
    for (const size_t i : missing) pages_.insert(write.chain[i]);
    forget(BlockKind::state, write.key);  // its pages were lost: it is written again with them
    states_[last].push_back({write.key, {tail.begin(), tail.end()}, snapshot.floor(), false});
    last_page_[write.key] = last;
  }

  for (const size_t i : missing) {
    std::vector<std::byte> payload(page_payload);
    const auto ids = bytes_of(tokens.subspan(i * static_cast<size_t>(page_tokens_), static_cast<size_t>(page_tokens_)));
    std::memcpy(payload.data(), ids.data(), ids.size());
    pools_.save_page(snapshot.pages()[i], page_tokens_, reinterpret_cast<uint8_t*>(payload.data() + ids.size()));
    write.pages.emplace_back(write.chain[i], std::move(payload));
  }
  const StateHead head{snapshot.length(), snapshot.prompt_end(), snapshot.floor(),
                       static_cast<uint32_t>(snapshot.mode()), static_cast<uint32_t>(tail.size())};
  write.head.resize(sizeof last + sizeof head + tail.size_bytes());
  std::memcpy(write.head.data(), &last, sizeof last);
  std::memcpy(write.head.data() + sizeof last, &head, sizeof head);
  std::memcpy(write.head.data() + sizeof last + sizeof head, tail.data(), tail.size_bytes());
  write.slot = snapshot.slot();
  write.tail_rows.resize(tail_rows);
  if (!tail.empty())
    pools_.save_page(snapshot.pages().back(), static_cast<int64_t>(tail.size()), write.tail_rows.data());
  {
    const std::lock_guard lock(mutex_);
    waiting_bytes_ += write.bytes;
    writes_.push_back(std::move(write));
  }
  changed_.notify_all();
}

void DiskCache::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !loads_.empty() || !writes_.empty(); });
    if (!loads_.empty()) {  // somebody waits for these
      const std::shared_ptr<Load> load = std::move(loads_.front());
      loads_.pop_front();
      lock.unlock();
      read(*load);
      wake_();
      lock.lock();
    } else if (!writes_.empty()) {
      Write next = std::move(writes_.front());
      writes_.pop_front();
      lock.unlock();
      write(next);
      publish();
      lock.lock();
      waiting_bytes_ -= next.bytes;
    } else {
      return;
    }
  }
}

void DiskCache::read(Load& load) {
  bool whole = false;
  try {
    whole = read_parts(load);
  } catch (const std::exception& error) { log::error("prefix cache on disk: {}; the prompt is run", error.what()); }
  publish();
  {
    const std::lock_guard lock(mutex_);
    if (!whole) forget(BlockKind::state, load.match_.state);  // not found again, but perhaps written again
    load.whole_ = whole;
    load.done_ = true;
  }
  changed_.notify_all();
}

bool DiskCache::read_parts(Load& load) {
  constexpr std::string_view kOther = "holds other tokens than its name says";
  const std::span<const int32_t> tokens = load.tokens_;
  const auto page = static_cast<size_t>(page_tokens_);
  const auto holds = [](const std::vector<std::byte>& payload, size_t at, std::span<const int32_t> ids) {
    return std::memcmp(payload.data() + at, ids.data(), ids.size_bytes()) == 0;
  };
  std::optional<std::vector<std::byte>> state = store_.read(BlockKind::state, load.match_.state);
  if (!state) return false;
  const std::span<const int32_t> tail = tokens.subspan(load.match_.pages.size() * page);
  StateHead head{};
  const size_t fixed = sizeof(BlockKey) + sizeof head;
  if (state->size() >= fixed) std::memcpy(&head, state->data() + sizeof(BlockKey), sizeof head);
  const size_t bytes = fixed + tail.size_bytes() + pools_.slot_bytes() + pools_.page_bytes(std::ssize(tail));
  if (state->size() != bytes || head.length != load.match_.length || head.tail != tail.size() ||
      head.mode > static_cast<uint32_t>(PrefillMode::bounded) || !holds(*state, fixed, tail)) {
    store_.reject(BlockKind::state, load.match_.state, kOther);
    return false;
  }
  load.state_ = std::move(*state);
  for (size_t i = 0; i < load.match_.pages.size(); ++i) {
    const BlockKey& key = load.match_.pages[i];
    std::optional<std::vector<std::byte>> rows = store_.read(BlockKind::page, key);
    if (!rows) return false;
    if (rows->size() != page * sizeof(int32_t) + pools_.page_bytes(page_tokens_) ||
        !holds(*rows, 0, tokens.subspan(i * page, page))) {
      store_.reject(BlockKind::page, key, kOther);
      return false;
    }
    load.pages_.push_back(std::move(*rows));
  }
  store_.touch(BlockKind::state, load.match_.state);
  touch_pages(load.match_.pages);
  return true;
}

// The first page becomes the youngest: what others may share goes last.
void DiskCache::touch_pages(const std::vector<BlockKey>& chain) {
  for (auto key = chain.rbegin(); key != chain.rend(); ++key) store_.touch(BlockKind::page, *key);
}

void DiskCache::write(Write& w) {
  try {
    touch_pages(w.chain);  // so that none of them makes room for what comes
    for (auto& [key, payload] : w.pages) store_.write(BlockKind::page, key, payload);
    const bool whole = std::all_of(w.chain.begin(), w.chain.end(),
                                   [&](const BlockKey& k) { return store_.contains(BlockKind::page, k); });
    if (whole) {
      std::vector<std::byte> payload = std::move(w.head);
      for (const std::vector<uint8_t>* part : {w.slot.get(), &std::as_const(w.tail_rows)}) {
        const auto bytes = std::as_bytes(std::span(*part));
        payload.insert(payload.end(), bytes.begin(), bytes.end());
      }
      store_.write(BlockKind::state, w.key, payload);
      touch_pages(w.chain);
    }
    last_failure_.clear();
    const std::lock_guard lock(mutex_);
    if (State* const state = find_state(w.key); state != nullptr && whole) {
      state->written = true;
      ++stats_.written;
    } else {
      ++stats_.dropped;  // a page was evicted or found damaged since
      forget(BlockKind::state, w.key);
    }
  } catch (const std::exception& error) {
    if (last_failure_ != error.what())
      log::error("prefix cache on disk: {}; it goes on with what it has", error.what());
    last_failure_ = error.what();
    const std::lock_guard lock(mutex_);
    ++stats_.failed;
    forget(BlockKind::state, w.key);
    for (const BlockKey& key : w.chain)
      if (!store_.contains(BlockKind::page, key)) forget(BlockKind::page, key);
  }
}

DiskCache::State* DiskCache::find_state(const BlockKey& key) {
  const auto last = last_page_.find(key);
  if (last == last_page_.end()) return nullptr;
  auto& states = states_.at(last->second);
  return &*std::find_if(states.begin(), states.end(), [&](const State& s) { return s.key == key; });
}

void DiskCache::forget(BlockKind kind, const BlockKey& key) {
  if (kind == BlockKind::page) {
    pages_.erase(key);
    return;
  }
  const State* const state = find_state(key);
  if (state == nullptr) return;
  const auto here = states_.find(last_page_.at(key));
  here->second.erase(here->second.begin() + (state - here->second.data()));
  if (here->second.empty()) states_.erase(here);
  last_page_.erase(key);
}

void DiskCache::publish() {
  const BlockStore::Stats& s = store_.stats();
  const std::lock_guard lock(mutex_);
  stats_.entries = s.entries;
  stats_.bytes = s.bytes;
  stats_.evicted = s.evicted;
  stats_.damaged = s.damaged;
}

DiskCache::Stats DiskCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace hadal
