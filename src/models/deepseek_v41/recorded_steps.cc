#include "models/deepseek_v41/recorded_steps.h"

namespace hadal::deepseek_v41 {

RecordedSteps::Key RecordedSteps::key(const StepPlan& plan) {
  const auto address = [](const void* p) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)); };
  const Segments& s = plan.segments();
  const RowSet& rows = plan.all();
  return {static_cast<uint64_t>(rows.rows),
          static_cast<uint64_t>(s.count),
          static_cast<uint64_t>(s.page_stride),
          address(s.first),
          address(s.slot),
          address(s.page_table),
          address(plan.device_tokens()),
          address(plan.floor()),
          address(rows.position),
          address(rows.segment),
          address(rows.step_row),
          address(rows.seg_begin),
          address(plan.requests().front().state->pools().ring(0).base)};
}

Step RecordedSteps::run(Key key, const std::function<Step()>& work) {
  key.push_back(context_.step_memory_epoch());
  key.push_back(context_.mark_step());
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    if (entries_.size() == kMost) {
      if (entries_.back().recording != nullptr) spare_ = std::move(entries_.back().recording);
      by_key_.erase(entries_.back().key);
      entries_.pop_back();
    }
    entries_.push_front({key, nullptr, {}, 0});
    by_key_[std::move(key)] = entries_.begin();
    return work();
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  Entry& entry = entries_.front();
  if (entry.recording == nullptr)
    entry.recording = context_.record(
        [&] {
          entry.step = work();
          entry.end = context_.mark_step();
        },
        std::move(spare_));
  context_.replay(*entry.recording);
  ++replays_;
  context_.release_step(entry.end);
  return entry.step;
}

}  // namespace hadal::deepseek_v41
