#include "models/deepseek_v41/recorded_steps.h"

namespace hadal::deepseek_v41 {

RecordedSteps::Key RecordedSteps::key(const StepPlan& plan, bool pages) {
  Key key = plan.identity(pages);
  key.push_back(reinterpret_cast<uintptr_t>(plan.requests().front().state->pools().ring(0).base));
  return key;
}

void RecordedSteps::record(Recorded& r, const std::function<Step()>& work, std::unique_ptr<Recording> old) {
  r.recording = context_.record(
      [&] {
        r.step = work();
        r.end = context_.mark_step();
      },
      std::move(old));
}

Step RecordedSteps::replay(const Recorded& r) {
  context_.replay(*r.recording);
  ++replays_;
  context_.release_step(r.end);
  return r.step;
}

Step RecordedSteps::prepare(Key key, const std::function<Step()>& work) {
  key.push_back(context_.mark_step());
  if (const auto known = prepared_.find(key); known != prepared_.end()) {
    context_.release_step(known->second.end);
    return known->second.step;
  }
  Recorded r;
  record(r, work, nullptr);
  Step step = r.step;
  if (context_.in_fixed_step_memory()) prepared_.insert_or_assign(std::move(key), std::move(r));
  return step;
}

Step RecordedSteps::run(Key key, const std::function<Step()>& work) {
  key.push_back(context_.mark_step());
  if (const auto ready = prepared_.find(key); ready != prepared_.end()) return replay(ready->second);
  key.push_back(context_.step_memory_epoch());
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    if (entries_.size() == kMost) {
      if (entries_.back().recording != nullptr) spare_ = std::move(entries_.back().recording);
      by_key_.erase(entries_.back().key);
      entries_.pop_back();
    }
    entries_.emplace_front().key = key;
    by_key_[std::move(key)] = entries_.begin();
    return work();
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  Entry& entry = entries_.front();
  if (entry.recording == nullptr) {
    record(entry, work, std::move(spare_));
    ++recorded_;
  }
  return replay(entry);
}

}  // namespace hadal::deepseek_v41
