// Steps of a shape that comes again, as recordings of the backend (CUDA graphs): a decode step is hundreds of short
// operators, and giving them one by one takes longer than most of them run.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "models/deepseek_v41/model.h"

namespace hadal::deepseek_v41 {

class RecordedSteps {
 public:
  // Everything about a step that its work depends on, besides what the arrays hold: sizes, and where the arrays are.
  using Key = std::vector<uint64_t>;
  static Key key(const StepPlan& plan, bool pages = true);

  explicit RecordedSteps(Context& context) : context_(context) {}

  // Records `work` and does not run it, for steps that will come. It is kept for good where it uses nothing but step memory
  // that never moves. The backend must have run work of this kind before, which lets it prepare what it does once.
  Step prepare(Key key, const std::function<Step()>& work);
  // Replays what was prepared. Otherwise, the first time a key is seen `work` runs as it is; then it is recorded, and
  // replayed from then on. `work` must give the same work whenever the key is the same.
  Step run(Key key, const std::function<Step()>& work);

  int64_t prepared() const { return static_cast<int64_t>(prepared_.size()); }
  int64_t recorded() const { return recorded_; }  // by run()
  int64_t replays() const { return replays_; }

 private:
  // Of shapes that nobody prepared: they change with the number of requests and, slowly, with their length.
  static constexpr size_t kMost = 64;

  struct Recorded {
    std::unique_ptr<Recording> recording;
    Step step;       // its tensors lie where the recorded work puts them
    size_t end = 0;  // mark of step memory after the work
  };
  struct Entry : Recorded {
    Key key;
  };

  void record(Recorded& r, const std::function<Step()>& work, std::unique_ptr<Recording> old);
  Step replay(const Recorded& r);

  Context& context_;
  std::map<Key, Recorded> prepared_;
  std::list<Entry> entries_;  // the latest used first
  std::map<Key, std::list<Entry>::iterator> by_key_;
  int64_t recorded_ = 0, replays_ = 0;
  std::unique_ptr<Recording> spare_;  // of an entry that was dropped: the next recording may be made from it
};

}  // namespace hadal::deepseek_v41
