// All state of a request: tokens, window rings, compressed rows, index keys, the pending half group, draft rings.
//
// Life of a step:  propose(tokens) -> the model runs the proposed rows -> the model commits n of them (commit) or none.
// Chunked prefill, speculation, prefix reuse, preemption, fork and cancellation use nothing else.        spec 4, 10.2
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "state/cache_pools.h"

namespace hadal {

// Which decoder rows a prompt runs (spec 3.12, 10.1). Encoder layers always run every row.
enum class PrefillMode : uint8_t {
  full,     // every layer, every row
  exact,    // the pyramid: the same last-row logits and state as full
  bounded,  // decoder layers run the last rows only and read nothing before them: an approximation
};
std::string_view to_string(PrefillMode mode);
// Throws invalid_argument naming the modes.
PrefillMode parse_prefill_mode(std::string_view name);

// A copy of everything that later tokens overwrite, and a share of the pages that they do not.
class Snapshot {
 public:
  Snapshot() = default;
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t floor() const { return floor_; }  // as RequestState::floor
  int64_t prompt_end() const { return prompt_end_; }
  PrefillMode mode() const { return mode_; }
  // Host memory, without the pages.
  size_t bytes() const { return slot_->size() + tokens_.size() * sizeof(int32_t); }
  std::span<const int32_t> pages() const { return pages_->list; }
  std::shared_ptr<const std::vector<uint8_t>> slot() const { return slot_; }  // as CachePools::save_slot

  // What a snapshot was stored as, apart from the pools.
  struct Stored {
    std::vector<int32_t> tokens;
    int64_t prompt_end = 0, floor = 0;
    PrefillMode mode = PrefillMode::full;
    std::vector<uint8_t> slot;
    std::vector<const uint8_t*> pages;  // as CachePools::save_page, one for each page that the tokens need
  };
  // Puts it into pages of these pools, which may be others than it came from. Full pages that `shared` (null: none) holds for
  // the same tokens are shared with it. Throws out_of_memory when there are too few free ones, and changes nothing.
  Snapshot(CachePools& pools, Stored stored, const Snapshot* shared);

 private:
  friend class RequestState;
  struct Pages {  // released with the last snapshot that holds them
    CachePools* pools;
    std::vector<int32_t> list;
    ~Pages();
  };
  std::vector<int32_t> tokens_;
  std::shared_ptr<Pages> pages_;
  std::shared_ptr<std::vector<uint8_t>> slot_;
  int64_t prompt_end_ = 0, floor_ = 0;
  PrefillMode mode_ = PrefillMode::full;
};

class RequestState {
 public:
  explicit RequestState(CachePools& pools);
  ~RequestState();
  RequestState(const RequestState&) = delete;
  RequestState& operator=(const RequestState&) = delete;

  // Announces that tokens length() .. prompt_end - 1 are a prompt, to be proposed in chunks of any size. `bounded_rows`
  // is the number of prompt rows that decoder layers run in `bounded`, at least the window.
  void begin_prompt(int64_t prompt_end, PrefillMode mode, int bounded_rows);

  // Appends tokens as not yet committed and reserves their pages. Throws out_of_memory and changes nothing if there are
  // too few pages.
  void propose(std::span<const int32_t> tokens);
  // The first n proposed tokens become part of the state, the others are dropped. The caller has run cache_commit with
  // the same n on the device. A chunk of a prompt is committed in whole or not at all: `exact` and `bounded` do not run the
  // rows that a shorter one would need.
  void commit(int64_t n);
  void rollback() { commit(0); }

  // Pages that proposing n tokens takes from the pool.
  int64_t pages_to_propose(int64_t n) const;

  Snapshot snapshot() const;  // no proposal may be open
  // Of the first `length` tokens, committed and proposed, for which the caller has run cache_commit and nothing for later
  // ones. So a prompt can be run to its end and kept in front of its last token.
  Snapshot snapshot(int64_t length) const;
  void restore(const Snapshot& saved);  // from any length, also shorter or of another request of the same pools

  int64_t length() const { return committed_; }  // committed tokens
  int64_t proposed() const { return static_cast<int64_t>(tokens_.size()) - committed_; }
  std::span<const int32_t> tokens() const { return tokens_; }  // committed, then proposed
  int slot() const { return slot_; }
  std::span<const int32_t> pages() const { return pages_; }

  PrefillMode mode() const { return mode_; }
  int64_t prompt_end() const { return prompt_end_; }
  // Window attention of decoder layers reads nothing below this position (the cut of a bounded prefill).
  int64_t floor() const { return floor_; }

  CachePools& pools() const { return pools_; }

 private:
  bool last_page_is_shared() const;
  void drop_pages(int64_t tokens);

  CachePools& pools_;
  int slot_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> pages_;
  int64_t committed_ = 0;
  int64_t prompt_end_ = 0, floor_ = 0;
  PrefillMode mode_ = PrefillMode::full;
};

}  // namespace hadal
