#include "ops/cpu/read_ahead.h"

#include <algorithm>

#include "base/error.h"

namespace hadal::cpu {
namespace {

constexpr int64_t kAsk = 512;  // bytes at once: a thread that waits looks up again after some ten nanoseconds
constexpr int64_t kMostAsked = 512 << 10;  // half of a second-level cache of Zen 4

}  // namespace

void ReadAhead::reading(std::span<const Bytes> parts) {
  HADAL_CHECK(!parts.empty());
  Parts& now = known_[parts.front().data()];
  now.parts.assign(parts.begin(), parts.end());
  if (last_ != nullptr) last_->next = &now;
  last_ = &now;
  expect(now.next == nullptr ? std::span<const Bytes>() : now.next->parts);
}

void ReadAhead::expect(std::span<const Bytes> parts) {
  const size_t count = std::min(parts.size(), parts_.size());
  count_.store(0, std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    parts_[i].data.store(parts[i].data(), std::memory_order_relaxed);
    parts_[i].bytes.store(static_cast<int64_t>(parts[i].size()), std::memory_order_relaxed);
  }
  count_.store(static_cast<int>(count), std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
}

ReadAhead::Worker& ReadAhead::worker_now(int worker) {
  Worker& w = workers_[static_cast<size_t>(worker)];
  const uint32_t turn = turn_.load(std::memory_order_acquire);
  if (w.turn != turn) w = {turn, worker, 0, 0};
  return w;
}

Bytes ReadAhead::take(int worker, int64_t bytes) {
  Worker& w = worker_now(worker);
  while (bytes > 0 && w.part < count_.load(std::memory_order_relaxed)) {
    const Part& part = parts_[static_cast<size_t>(w.part)];
    const int64_t count = std::min(bytes, part.bytes.load(std::memory_order_relaxed) - w.at);
    if (count > 0) {
      const std::byte* data = part.data.load(std::memory_order_relaxed) + w.at;
      w.at += count;
      w.asked += count;
      return {data, static_cast<size_t>(count)};
    }
    w.part += static_cast<int>(workers_.size());
    w.at = 0;
  }
  return {};
}

bool ReadAhead::ask(int worker) {
  if (worker_now(worker).asked >= kMostAsked) return false;
  const Bytes bytes = take(worker, kAsk);
  for (size_t i = 0; i < bytes.size(); i += 64) __builtin_prefetch(bytes.data() + i, 0, 2);
  return !bytes.empty();
}

}  // namespace hadal::cpu
