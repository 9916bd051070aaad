#include "ops/testing/step.h"

#include <algorithm>
#include <cmath>

namespace hadal::testing {

HostStep make_step(Random& random, const std::vector<StepSegment>& segments, int page_tokens) {
  HostStep step;
  step.segments = segments;
  step.page_tokens = page_tokens;
  const int count = static_cast<int>(segments.size());
  // More slots and pages than requests need: the unused ones must stay as they are.
  step.slots = count + 2;
  const std::vector<int32_t> slots = random.permutation(step.slots);
  step.slot.assign(slots.begin(), slots.begin() + count);

  const auto pages_of = [&](const StepSegment& s) { return (s.first + s.count + page_tokens - 1) / page_tokens; };
  step.pages = 3;
  for (const StepSegment& s : segments) {
    step.pages += pages_of(s);
    step.page_stride = std::max(step.page_stride, pages_of(s) + 1);
  }
  const std::vector<int32_t> pages = random.permutation(step.pages);
  size_t next_page = 0;

  step.all.seg_begin.push_back(0);
  step.kept.seg_begin.push_back(0);
  int32_t step_row = 0;
  for (int s = 0; s < count; ++s) {
    const StepSegment& segment = segments[s];
    step.first.push_back(segment.first);
    for (int i = 0; i < step.page_stride; ++i)
      step.page_table.push_back(i < pages_of(segment) ? pages[next_page++] : -1);
    const int kept = segment.kept < 0 ? segment.count : segment.kept;
    for (int i = 0; i < segment.count; ++i, ++step_row) {
      const auto add = [&](HostRows& rows) {
        rows.position.push_back(segment.first + i);
        rows.segment.push_back(s);
        rows.step_row.push_back(step_row);
      };
      add(step.all);
      if (i >= segment.count - kept) add(step.kept);
    }
    step.all.seg_begin.push_back(step.all.rows());
    step.kept.seg_begin.push_back(step.kept.rows());
  }
  return step;
}

std::vector<uint8_t> random_packed_rows(Random& random, RowFormat format, int dim, int64_t rows, double sigma) {
  const auto bytes = static_cast<int64_t>(row_bytes(format, dim));
  std::vector<uint8_t> out(rows * bytes);
  for (int64_t r = 0; r < rows; ++r)
    pack_row(format, random.normals(dim, sigma, 4).data(), dim, out.data() + r * bytes);
  return out;
}

std::vector<float> inverse_frequencies(int dim, double theta) {
  std::vector<float> f;
  for (int i = 0; i < dim / 2; ++i) f.push_back(static_cast<float>(std::pow(theta, -2.0 * i / dim)));
  return f;
}

namespace {

RowSet upload_rows(Backend& backend, const HostRows& host) {
  return {host.rows(), backend.array(host.position), backend.array(host.segment), backend.array(host.step_row),
          backend.array(host.seg_begin)};
}

}  // namespace

DeviceStep::DeviceStep(Backend& backend, const HostStep& host)
    : all(upload_rows(backend, host.all)),
      kept(upload_rows(backend, host.kept)),
      segments{static_cast<int>(host.segments.size()), backend.array(host.first), backend.array(host.slot),
               backend.array(host.page_table), host.page_stride} {}

}  // namespace hadal::testing
