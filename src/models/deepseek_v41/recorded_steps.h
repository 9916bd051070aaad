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
  static Key key(const StepPlan& plan);

  explicit RecordedSteps(Context& context) : context_(context) {}

  // The first time a key is seen `work` runs as it is, which also lets the backend prepare what it does once; then it is
  // recorded, and replayed from then on. `work` must give the same work whenever the key is the same.
  Step run(Key key, const std::function<Step()>& work);

  int64_t replays() const { return replays_; }

 private:
  // Shapes change with the number of requests and, slowly, with their length.
  static constexpr size_t kMost = 64;

  struct Entry {
    Key key;
    std::unique_ptr<Recording> recording;
    Step step;       // its tensors lie where the recorded work puts them
    size_t end = 0;  // mark of step memory after the work
  };

  Context& context_;
  std::list<Entry> entries_;  // the latest used first
  std::map<Key, std::list<Entry>::iterator> by_key_;
  int64_t replays_ = 0;
  std::unique_ptr<Recording> spare_;  // of an entry that was dropped: the next recording may be made from it
};

}  // namespace hadal::deepseek_v41
