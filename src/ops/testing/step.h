// Steps for the cases: requests, row sets, pages in random order, cache pools with random content.
#pragma once

#include <vector>

#include "ops/testing/backend.h"

namespace hadal::testing {

// One request of a step: `count` rows from position `first`; decoder layers see the last `kept` of them (-1: all).
struct StepSegment {
  int first = 0;
  int count = 0;
  int kept = -1;
};

struct HostRows {
  std::vector<int32_t> position, segment, step_row, seg_begin;
  int rows() const { return static_cast<int>(position.size()); }
};

struct HostStep {
  std::vector<StepSegment> segments;
  HostRows all;   // every row
  HostRows kept;  // the suffixes
  std::vector<int32_t> first, slot;
  int slots = 0;
  // Pages of page_tokens tokens; each request has enough for its rows, in random order; -1 behind them.
  std::vector<int32_t> page_table;
  int page_tokens = 0, page_stride = 0, pages = 0;

  int64_t physical(int segment, int ratio, int64_t group) const {
    return PagedRows::physical(page_table.data() + int64_t{segment} * page_stride, page_tokens / ratio, group);
  }
};

HostStep make_step(Random& random, const std::vector<StepSegment>& segments, int page_tokens = 4);

// Packed rows of random normal values.
std::vector<uint8_t> random_packed_rows(Random& random, RowFormat format, int dim, int64_t rows, double sigma = 1);

// inv_freq of `dim` rotated channels with this base.
std::vector<float> inverse_frequencies(int dim, double theta = 10000);

// The device side of a step. Keeps what arguments point to.
struct DeviceStep {
  RowSet all, kept;
  Segments segments;
  DeviceStep(Backend& backend, const HostStep& host);
};

}  // namespace hadal::testing
