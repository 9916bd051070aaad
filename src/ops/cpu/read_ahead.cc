#include "ops/cpu/read_ahead.h"

#include <algorithm>

#include "base/error.h"

namespace hadal::cpu {
namespace {

constexpr int64_t kAsk = 512;  // bytes at once: a thread that waits looks up again after some ten nanoseconds

// Into the second-level cache.
void prefetch(const Read& read) {
  for (int64_t i = 0; i < read.bytes; i += 64) __builtin_prefetch(read.data + i, 0, 2);
  if (read.scale == nullptr) return;
  for (int64_t i = 0; i < read.bytes / 16; i += 64) __builtin_prefetch(read.scale + i, 0, 2);
}

}  // namespace

// ---- a worker ----
void Reader::follow_turn() {
  const uint32_t turn = all_->turn_.load(std::memory_order_acquire);
  if (turn == turn_) return;
  const bool goes_on = turn == turn_ + 1 && in_next_ && all_->as_expected_.load(std::memory_order_relaxed);
  in_next_ = begun_ = lost_ = false;
  turn_ = turn;
  if (!goes_on) {
    lead_ = 0;
    go_to({rank_, 0});
  } else if (part_.bytes == 0) {
    go_to(place_);  // behind what was expected, but the loop may go on there
  }
}

Reader::Place Reader::in_turn() const {
  if (!begun_) return {rank_, 0};
  if (own_place_.part + 1 < all_->list(turn_, false).parts_of_task.load(std::memory_order_relaxed))
    return {own_place_.task, own_place_.part + 1};
  return {own_place_.task + workers_, 0};
}

bool Reader::find(const Read& rows, Place* place) const {
  const auto& list = all_->list(turn_, false);
  for (int task = 0; task < list.tasks.load(std::memory_order_relaxed); ++task)
    for (int i = 0; i < list.parts_of_task.load(std::memory_order_relaxed); ++i)
      if (list.part(task, i).data == rows.data) {
        *place = {task, i};
        return true;
      }
  return false;
}

void Reader::begin(const Read& rows, int64_t near) {
  follow_turn();
  Place place = in_turn();
  const auto& list = all_->list(turn_, false);
  if (lost_ || place.task >= list.tasks.load(std::memory_order_relaxed) ||
      list.part(place.task, place.part).data != rows.data) {
    // Another worker was slower, and this one has its task: what it asked for is not what it reads.
    lost_ = !find(rows, &place);
    lead_ = 0;
  }
  own_ = rows;
  near_ = near;
  own_place_ = place;
  begun_ = true;
  if (lead_ == 0) {
    in_next_ = false;
    go_to(place);
  }
  while (lead_ < near) {
    const Read read = more(near - lead_);
    if (read.bytes == 0) break;
    prefetch(read);
  }
}

void Reader::go_to(Place place) {
  place_ = place;
  part_ = lost_ ? own_ : all_->list(turn_, in_next_).part(place.task, place.part);
  at_ = 0;
}

bool Reader::next_part() {
  if (lost_) return false;
  for (;;) {
    const auto& list = all_->list(turn_, in_next_);
    if (place_.task >= list.tasks.load(std::memory_order_relaxed)) {
      if (in_next_) return false;
      in_next_ = true;
      go_to({rank_, 0});
    } else if (place_.part + 1 < list.parts_of_task.load(std::memory_order_relaxed)) {
      go_to({place_.task, place_.part + 1});
    } else {
      go_to({place_.task + workers_, 0});
    }
    if (part_.bytes > 0) return true;
  }
}

bool Reader::ask(int64_t most) {
  follow_turn();
  if (lead_ >= most) return false;
  const Read read = more(kAsk);
  prefetch(read);
  return read.bytes > 0;
}

// ---- all workers ----
ReadAhead::ReadAhead(int workers) : readers_(static_cast<size_t>(workers)) {
  for (int w = 0; w < workers; ++w) {
    Reader& reader = readers_[static_cast<size_t>(w)];
    reader.all_ = this;
    reader.rank_ = reader.place_.task = w;
    reader.workers_ = workers;
  }
}

int ReadAhead::known_tasks(const Loop& loop) {
  return static_cast<int>(std::min(loop.parts.size(), size_t{kMostParts})) / loop.parts_of_task;
}

void ReadAhead::List::set(const Loop& loop) {
  const int count = known_tasks(loop);
  tasks.store(0, std::memory_order_relaxed);
  parts_of_task.store(loop.parts_of_task, std::memory_order_relaxed);
  for (size_t i = 0; i < static_cast<size_t>(count * loop.parts_of_task); ++i) {
    parts[i].data.store(loop.parts[i].data, std::memory_order_relaxed);
    parts[i].scale.store(loop.parts[i].scale, std::memory_order_relaxed);
    parts[i].bytes.store(loop.parts[i].bytes, std::memory_order_relaxed);
  }
  tasks.store(count, std::memory_order_relaxed);
}

Read ReadAhead::List::part(int task, int i) const {
  const int at = task * parts_of_task.load(std::memory_order_relaxed) + i;
  if (task >= tasks.load(std::memory_order_relaxed) || at >= kMostParts) return {};
  const Part& p = parts[static_cast<size_t>(at)];
  return {p.data.load(std::memory_order_relaxed), p.bytes.load(std::memory_order_relaxed),
          p.scale.load(std::memory_order_relaxed)};
}

bool ReadAhead::List::begins(const Loop& loop) const {
  const int of_task = parts_of_task.load(std::memory_order_relaxed), count = tasks.load(std::memory_order_relaxed);
  if (of_task != loop.parts_of_task || count > known_tasks(loop)) return false;
  for (size_t i = 0; i < static_cast<size_t>(count * of_task); ++i)
    if (parts[i].data.load(std::memory_order_relaxed) != loop.parts[i].data) return false;
  return true;
}

const ReadAhead::Known* ReadAhead::remember(const Loop& loop) {
  HADAL_CHECK(!loop.parts.empty() && loop.parts.size() % static_cast<size_t>(loop.parts_of_task) == 0);
  Known& now = known_[loop.key != nullptr ? loop.key : loop.parts.front().data];
  const int tasks = std::min(loop.stable_tasks, known_tasks(loop));
  const auto stable = loop.parts.first(static_cast<size_t>(tasks * loop.parts_of_task));
  now.parts.assign(stable.begin(), stable.end());
  now.parts_of_task = loop.parts_of_task;
  if (last_ != nullptr) last_->next = &now;
  last_ = &now;
  return now.next;
}

void ReadAhead::turn_to(const Loop& loop, const Loop& next) {
  const uint32_t turn = turn_.load(std::memory_order_relaxed);
  List &now = lists_[(turn + 1) % 2], &after = lists_[turn % 2];
  as_expected_.store(now.begins(loop), std::memory_order_relaxed);
  now.set(loop);
  after.set(next);
  turn_.store(turn + 1, std::memory_order_release);
}

void ReadAhead::reading(const Loop& loop) {
  const Known* next = remember(loop);
  turn_to(loop, next == nullptr ? Loop() : Loop{.parts = next->parts, .parts_of_task = next->parts_of_task});
}

void ReadAhead::reading(const Loop& loop, const Loop& next) {
  remember(loop);
  turn_to(loop, next);
}

}  // namespace hadal::cpu
