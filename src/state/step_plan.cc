#include "state/step_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"

namespace hadal {
namespace {

// The width of the page table grows in steps, so that most steps have the shape of the one before: powers of two, then
// multiples of 64 pages.
size_t rounded_pages(size_t pages) { return pages > 64 ? (pages + 63) / 64 * 64 : std::bit_ceil(pages); }

int rounded_up(const std::vector<int>& sizes, size_t size) {
  const auto at = std::lower_bound(sizes.begin(), sizes.end(), static_cast<int>(size));
  return at == sizes.end() ? static_cast<int>(size) : *at;
}

// Every request has logits of all rows that it proposes.
bool decodes(std::span<const SegmentRequest> requests) {
  return !requests.empty() && std::all_of(requests.begin(), requests.end(), [](const SegmentRequest& r) {
    const int64_t rows = r.state->proposed();
    return rows >= 1 && (r.logits == LogitsWanted::all || (r.logits == LogitsWanted::last && rows == 1));
  });
}

// First position that a layer takes in or puts out, for the last `rows` rows of a prompt.
int64_t last_rows(const RequestState& state, int64_t rows) {
  return std::max(state.length(), state.prompt_end() - rows);
}

}  // namespace

const DecodeBuckets::Size* DecodeBuckets::holding(int64_t requests, int64_t rows) const {
  const auto at = std::find_if(sizes.begin(), sizes.end(), [&](const Size& size) {
    return size.rows >= rows && size.segments >= requests + size.rows - rows;
  });
  return at == sizes.end() ? nullptr : &*at;
}

StepPlan::StepPlan(Context& context, const StepShape& shape, std::span<const SegmentRequest> requests)
    : context_(context), requests_(requests.begin(), requests.end()) {
  std::vector<int64_t> rows;  // of each segment
  for (const SegmentRequest& r : requests) rows.push_back(r.state->proposed());
  const int64_t proposed = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const DecodeBuckets::Size* size = nullptr;
  if (shape.buckets != nullptr && decodes(requests))
    size = shape.buckets->holding(static_cast<int64_t>(requests.size()), proposed);
  if (size != nullptr) {
    rows.resize(rows.size() + static_cast<size_t>(size->rows - proposed), 1);
    rows.resize(static_cast<size_t>(size->segments), 0);
    requests_.resize(rows.size(), requests_.back());
  }
  const size_t n = requests_.size();
  std::vector<int32_t> first, slot;
  std::vector<int32_t> floor(n, 0);
  auto page_stride = static_cast<size_t>(shape.least_pages);
  step_begin_.push_back(0);
  for (size_t s = 0; s < n; ++s) {
    const RequestState& state = *requests_[s].state;
    first.push_back(static_cast<int32_t>(state.length()));
    slot.push_back(state.slot());
    floor[s] = static_cast<int32_t>(state.floor());
    page_stride = std::max(page_stride, state.pages().size());
    const auto tokens = state.tokens().subspan(static_cast<size_t>(state.length()), static_cast<size_t>(rows[s]));
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    step_begin_.push_back(static_cast<int32_t>(tokens_.size()));
  }
  page_stride =
      size != nullptr ? static_cast<size_t>(rounded_up(shape.buckets->pages, page_stride)) : rounded_pages(page_stride);
  std::vector<int32_t> page_table(n * page_stride, -1);
  for (size_t s = 0; s < n; ++s)
    if (rows[s] > 0)
      std::copy(requests_[s].state->pages().begin(), requests_[s].state->pages().end(),
                page_table.begin() + static_cast<std::ptrdiff_t>(s * page_stride));
  const int32_t* device_first = context.upload(first);
  const int32_t* device_slot = context.upload(slot);
  // In a decode step there is room for the widest table: what lies behind it has one place whatever the width.
  const size_t room = n * (size != nullptr ? std::max<size_t>(page_stride, shape.buckets->pages.back()) : page_stride);
  auto* device_pages = static_cast<int32_t*>(context.allocate_step(room * sizeof(int32_t)));
  context.copy_to_device(device_pages, page_table.data(), page_table.size() * sizeof(int32_t));
  segments_ = {static_cast<int>(n), device_first, device_slot, device_pages, static_cast<int>(page_stride)};
  device_tokens_ = context.upload(tokens_);
  // A decode step always has them, so that its shape does not tell in what mode its prompts ran.
  const bool bounded = size != nullptr || std::any_of(requests_.begin(), requests_.end(), [](const auto& r) {
                         return r.state->mode() == PrefillMode::bounded || r.state->floor() > 0;
                       });
  if (bounded) floor_ = context.upload(floor);

  std::vector<int64_t> start(n);
  for (size_t s = 0; s < n; ++s) start[s] = requests_[s].state->length();
  all_ = &suffix(start);

  // Rows that layer `layer` takes in (shift 0) or puts out (shift 1): spec 10.1.
  const auto decoder_first = [&](size_t s, int layer, int shift) -> int64_t {
    const RequestState& state = *requests_[s].state;
    if (layer < shape.decoder_begin || (layer == shape.decoder_begin && shift == 0)) return start[s];
    switch (state.mode()) {
      case PrefillMode::full: return start[s];
      case PrefillMode::exact:
        return last_rows(state, 1 + static_cast<int64_t>(shape.layers - shift - layer) * (shape.window - 1));
      case PrefillMode::bounded: return std::max(start[s], state.floor());
    }
    return start[s];
  };
  for (int l = 0; l < shape.layers; ++l)
    for (const int shift : {0, 1}) {
      std::vector<int64_t> from(n);
      for (size_t s = 0; s < n; ++s) from[s] = decoder_first(s, l, shift);
      (shift == 0 ? in_ : out_).push_back(&suffix(from));
    }

  std::vector<int64_t> draft(n);
  for (size_t s = 0; s < n; ++s) {
    // A chunk of a prompt is accepted in whole, so only its last window can stay in a ring; of other rows any number may be
    // accepted.
    const int64_t end = start[s] + rows[s];
    draft[s] = decoder_first(s, shape.layers - 1, 0);
    if (end <= requests_[s].state->prompt_end()) draft[s] = std::max(draft[s], end - shape.window);
  }
  draft_ = &suffix(draft);

  std::vector<std::vector<int32_t>> wanted(n);
  for (size_t s = 0; s < n; ++s) {
    const int32_t begin = step_begin_[s], end = step_begin_[s + 1];
    if (requests_[s].logits == LogitsWanted::none || begin == end) continue;
    for (int32_t r = requests_[s].logits == LogitsWanted::all ? begin : end - 1; r < end; ++r) wanted[s].push_back(r);
    const int64_t reached = decoder_first(s, shape.layers - 1, 1);
    if (start[s] + (wanted[s].front() - begin) < reached)
      fail(ErrorKind::internal, "logits at position {} are not computed by {} prefill (first is {}); use full",
           start[s] + (wanted[s].front() - begin), to_string(requests_[s].state->mode()), reached);
  }
  logits_ = &make(wanted);
}

const RowSet& StepPlan::suffix(const std::vector<int64_t>& first) {
  const auto found = by_first_.find(first);
  if (found != by_first_.end()) return *found->second;
  std::vector<std::vector<int32_t>> rows(first.size());
  for (size_t s = 0; s < first.size(); ++s) {
    const int64_t skip = std::max<int64_t>(0, first[s] - requests_[s].state->length());
    for (int64_t r = step_begin_[s] + skip; r < step_begin_[s + 1]; ++r) rows[s].push_back(static_cast<int32_t>(r));
  }
  const RowSet& set = make(rows);
  by_first_[first] = &set;
  return set;
}

const RowSet& StepPlan::make(const std::vector<std::vector<int32_t>>& step_rows) {
  std::vector<int32_t> position, segment, flat, begin{0};
  for (size_t s = 0; s < step_rows.size(); ++s) {
    for (const int32_t r : step_rows[s]) {
      position.push_back(static_cast<int32_t>(requests_[s].state->length() + r - step_begin_[s]));
      segment.push_back(static_cast<int32_t>(s));
      flat.push_back(r);
    }
    begin.push_back(static_cast<int32_t>(flat.size()));
  }
  // Equal sets share one object, so that decode steps need no maps.
  for (const auto& [set, rows] : host_rows_)
    if (rows == flat) return *set;
  sets_.push_back({static_cast<int>(flat.size()), context_.upload(position), context_.upload(segment),
                   context_.upload(flat), context_.upload(begin)});
  const RowSet& set = sets_.back();
  host_rows_[&set] = std::move(flat);
  return set;
}

bool StepPlan::uniform() const {
  const auto all = [&](const RowSet* set) { return set == all_; };
  return std::all_of(in_.begin(), in_.end(), all) && std::all_of(out_.begin(), out_.end(), all) && all(draft_) &&
         all(logits_);
}

std::vector<uint64_t> StepPlan::identity(bool pages) const {
  const auto address = [](const void* p) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)); };
  const Segments& s = segments_;
  std::vector<uint64_t> id = {static_cast<uint64_t>(s.count),
                              pages ? static_cast<uint64_t>(s.page_stride) : 0,
                              address(s.first),
                              address(s.slot),
                              address(s.page_table),
                              address(device_tokens_),
                              address(floor_)};
  for (const RowSet& set : sets_)
    id.insert(id.end(), {static_cast<uint64_t>(set.rows), address(set.position), address(set.segment),
                         address(set.step_row), address(set.seg_begin)});
  // An array names its set.
  for (const auto* sets : {&in_, &out_})
    for (const RowSet* set : *sets) id.push_back(address(set->seg_begin));
  for (const RowSet* set : {draft_, logits_}) id.push_back(address(set->seg_begin));
  std::vector<uint64_t> maps;
  for (const auto& [sets, rows] : maps_) maps.push_back(address(rows));
  std::sort(maps.begin(), maps.end());
  id.insert(id.end(), maps.begin(), maps.end());
  return id;
}

int StepPlan::segment_of(int32_t step_row) const {
  const auto after = std::upper_bound(step_begin_.begin(), step_begin_.end(), step_row);
  return static_cast<int>(after - step_begin_.begin()) - 1;
}

int64_t StepPlan::position_of(int32_t step_row) const {
  const auto s = static_cast<size_t>(segment_of(step_row));
  return requests_[s].state->length() + step_row - step_begin_[s];
}

const int32_t* StepPlan::map(const RowSet& from, const RowSet& to) {
  if (&from == &to) return nullptr;
  const auto key = std::make_pair(&from, &to);
  const auto found = maps_.find(key);
  if (found != maps_.end()) return found->second;
  const std::vector<int32_t>& a = host_rows_.at(&from);
  const std::vector<int32_t>& b = host_rows_.at(&to);
  std::vector<int32_t> rows;
  size_t i = 0;
  for (const int32_t r : b) {  // both ascend
    while (i < a.size() && a[i] < r) ++i;
    HADAL_CHECK(i < a.size() && a[i] == r);
    rows.push_back(static_cast<int32_t>(i));
  }
  return maps_[key] = context_.upload(rows);
}

}  // namespace hadal
