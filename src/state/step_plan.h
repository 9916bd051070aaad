// The step plan: which rows each layer runs, as flat arrays. Built on the CPU from the proposals of the requests.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "state/request_state.h"

namespace hadal {

enum class LogitsWanted : uint8_t { none, last, all };

// One request's share of a step: its open proposal.
struct SegmentRequest {
  RequestState* state = nullptr;
  LogitsWanted logits = LogitsWanted::last;
};

// Sizes that decode steps are filled up to, so that few recordings serve all, whatever number of drafts each request brings.
// A step is filled up with its last request, once more or several times, of which the first row runs: the same row gives
// the same values at the same places, and none of it is ever accepted. Then come segments without rows.
struct DecodeBuckets {
  struct Size {
    int rows, segments;
    bool operator==(const Size&) const = default;
  };
  std::vector<Size> sizes;  // ascending; steps that none of them holds are not filled up
  std::vector<int> pages;   // ascending: widths of the page table

  // The first size that holds so many requests with so many rows in all, or null.
  const Size* holding(int64_t requests, int64_t rows) const;
};

// What the plan must know of the model.
struct StepShape {
  int layers = 0;
  int window = 0;
  // First decoder layer, whose compressor is the last to read every row; == layers when the model has none, and then
  // every layer runs every row.
  int decoder_begin = 0;
  const DecodeBuckets* buckets = nullptr;
  int least_pages = 1;  // width of the page table
};

class StepPlan {
 public:
  StepPlan(Context& context, const StepShape& shape, std::span<const SegmentRequest> requests);
  StepPlan(const StepPlan&) = delete;
  StepPlan& operator=(const StepPlan&) = delete;

  // Those given, and what fills up the step: the last one again.
  std::span<const SegmentRequest> requests() const { return requests_; }
  const Segments& segments() const { return segments_; }
  int rows() const { return all().rows; }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // host, all rows
  const int32_t* device_tokens() const { return device_tokens_; }

  const RowSet& all() const { return *all_; }
  // Rows that layer l takes in (its input is normalised and gives a window latent), and rows that it puts out.
  const RowSet& in(int layer) const { return *in_[static_cast<size_t>(layer)]; }
  const RowSet& out(int layer) const { return *out_[static_cast<size_t>(layer)]; }
  // Rows whose taps condition the draft module: those that the last layer takes in, of a prompt's chunk the last window.
  const RowSet& draft() const { return *draft_; }
  const RowSet& logits() const { return *logits_; }

  // Whether every layer runs every row and every row wants logits: decode steps, also with drafts.
  bool uniform() const;

  // For each row of `to`, its row in `from` (a superset); null when they are the same rows. Made when first asked for and
  // kept in step memory: do not ask for the first time inside a StepScratch.
  const int32_t* map(const RowSet& from, const RowSet& to);

  // All that operators are given of the plan besides what its arrays hold: sizes, and where the arrays lie, those of the maps
  // made so far included. Without `pages` the width of the page table is left out, for what does not read it.
  std::vector<uint64_t> identity(bool pages = true) const;

  // Host copy of set.step_row.
  std::span<const int32_t> step_rows(const RowSet& set) const { return host_rows_.at(&set); }
  // Segment of a step row, and its position in the request.
  int segment_of(int32_t step_row) const;
  int64_t position_of(int32_t step_row) const;

  // [segments], or null when it bounds nothing: for window attention of decoder layers.
  const int32_t* floor() const { return floor_; }

 private:
  const RowSet& suffix(const std::vector<int64_t>& first);  // rows at positions >= first[segment]
  const RowSet& make(const std::vector<std::vector<int32_t>>& step_rows);

  Context& context_;
  std::vector<SegmentRequest> requests_;
  Segments segments_;
  std::vector<int32_t> tokens_;
  const int32_t* device_tokens_ = nullptr;
  const int32_t* floor_ = nullptr;

  std::vector<int32_t> step_begin_;                          // [segments + 1]
  std::deque<RowSet> sets_;                                  // stable addresses
  std::map<const RowSet*, std::vector<int32_t>> host_rows_;  // step_row of each set
  std::map<std::vector<int64_t>, const RowSet*> by_first_;
  std::map<std::pair<const RowSet*, const RowSet*>, const int32_t*> maps_;
  const RowSet* all_ = nullptr;
  const RowSet* draft_ = nullptr;
  const RowSet* logits_ = nullptr;
  std::vector<const RowSet*> in_, out_;
};

}  // namespace hadal
