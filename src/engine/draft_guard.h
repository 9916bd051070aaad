// How many drafts a step may verify, so that drafting pays: learned from what steps cost and how many tokens they gave.
#pragma once

#include <cstdint>
#include <vector>

namespace hadal {

// For steps of about the same number of requests. Only speed depends on what it says, never a token.
class DraftGuard {
 public:
  explicit DraftGuard(int most);

  // Drafts for the next step, 0 to `most`, or `most` + 1: up to `most`, cut where the draft module's own confidence says. It is
  // the choice that gave the most tokens per second, and now and then another one, to see whether that has changed.
  int choose();
  int most() const { return static_cast<int>(choices_.size()) - 2; }

  // A step with that choice took so long, drafting included, and gave each request so many tokens on average.
  void observe(int choice, double seconds, double tokens);

 private:
  struct Choice {
    int steps = 0;
    int64_t last = 0;                // observation
    double seconds = 0, tokens = 0;  // running means
  };
  double rate(int choice) const;

  std::vector<Choice> choices_;
  int64_t observed_ = 0;
  int64_t steps_ = 0;
  int64_t trial_ = 0;  // which other choice is tried next
};

}  // namespace hadal
