// Memory is asked early for what a worker reads next: while it multiplies, while it waits for others, and in operators
// that read little.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

namespace hadal::cpu {

// Weight rows that lie one behind the other.
struct Read {
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
  const uint8_t* scale = nullptr;  // MXFP4: one byte for every 16
};

class ReadAhead;

// What one worker reads, in order: its parts of the loop that runs, then its parts of the loop that is expected. A cursor
// goes through them and says what to ask for. It is just in front of what is multiplied, or, after a time in which memory
// would have been idle, far in front. Used by that worker alone.
class alignas(64) Reader {
 public:
  // The worker begins to read these rows, and wants to be at least `near` bytes in front of them.
  void begin(const Read& rows, int64_t near);
  // The worker reads `bytes` now.
  void pass(int64_t bytes) {
    lead_ -= bytes;
    if (lead_ < 0) at_ -= lead_, lead_ = 0;
  }
  // What it asks for meanwhile: at most `bytes`, in one piece. Empty when nothing more is known.
  Read more(int64_t bytes) {
    if (at_ >= part_.bytes && !next_part()) return {};
    const int64_t at = at_, count = bytes < part_.bytes - at ? bytes : part_.bytes - at;
    at_ += count;
    lead_ += count;
    return {part_.data + at, count, part_.scale == nullptr ? nullptr : part_.scale + at / 16};
  }
  // Whether the cursor is so far in front that what comes next may have left the second-level cache.
  bool far() const { return lead_ > near_ + 8192; }
  // Asks for a little. False when `most` bytes that were asked for are still to be read, or nothing more is known.
  bool ask(int64_t most);

 private:
  friend class ReadAhead;
  struct Place {
    int task = 0, part = 0;
  };
  void follow_turn();
  Place in_turn() const;
  bool find(const Read& rows, Place* place) const;
  void go_to(Place place);
  bool next_part();

  const ReadAhead* all_ = nullptr;
  int rank_ = 0, workers_ = 1;
  uint32_t turn_ = 0;
  // What is read: its place among the parts of the loop, unless no part is like it.
  Read own_;
  Place own_place_;
  bool begun_ = false, lost_ = false;
  // The cursor: a part of the loop or, later, of the expected one, and the bytes of it that were asked for.
  bool in_next_ = false;
  Place place_;
  Read part_;
  int64_t at_ = 0;
  int64_t lead_ = 0;  // bytes asked for that have not been read
  int64_t near_ = 0;
};

// A model reads its weights in the same order in every step, so what followed a loop last time is expected to follow it
// again. A wrong guess costs a read that nobody needed, never a result.
//
// Workers take the tasks of a loop in turn, more or less: worker w reads the parts of tasks w, w + workers, .., so that they
// come to lie in its own caches. Cores need not share any: on a virtual machine they may be of two dies.
class ReadAhead {
 public:
  static constexpr int kMostParts = 4096;

  // The weights that a loop reads: of each task the same number of parts, in order. What does not fit is not known.
  struct Loop {
    std::span<const Read> parts;
    int parts_of_task = 1;
    // In the next step only the tasks before this one are expected to read the same.
    int stable_tasks = std::numeric_limits<int>::max();
    const void* key = nullptr;  // by which the loop is known in the next step; null: where its first part lies
  };

  explicit ReadAhead(int workers);

  // Called by one thread before a loop runs. What follows it is expected to be what followed last time, or `next`.
  void reading(const Loop& loop);
  void reading(const Loop& loop, const Loop& next);

  Reader& reader(int worker) { return readers_[static_cast<size_t>(worker)]; }

 private:
  friend class Reader;
  struct Part {
    std::atomic<const uint8_t*> data{nullptr}, scale{nullptr};
    std::atomic<int64_t> bytes{0};
  };
  // A worker that waits may look while these change: it asks for the wrong bytes, and no more.
  struct List {
    std::atomic<int> tasks{0}, parts_of_task{1};
    std::array<Part, kMostParts> parts;

    void set(const Loop& loop);
    Read part(int task, int i) const;
    bool begins(const Loop& loop) const;  // with these parts, as far as they go
  };
  struct Known {
    std::vector<Read> parts;
    int parts_of_task = 1;
    const Known* next = nullptr;
  };
  static int known_tasks(const Loop& loop);
  const List& list(uint32_t turn, bool next) const { return lists_[(turn + (next ? 1 : 0)) % 2]; }
  const Known* remember(const Loop& loop);
  void turn_to(const Loop& loop, const Loop& next);

  std::unordered_map<const void*, Known> known_;
  Known* last_ = nullptr;
  std::vector<Reader> readers_;
  // Of the loop that runs and of the expected one, which change places with every turn.
  std::array<List, 2> lists_;
  std::atomic<bool> as_expected_{false};
  alignas(64) std::atomic<uint32_t> turn_{0};
};

}  // namespace hadal::cpu
