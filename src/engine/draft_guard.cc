#include "engine/draft_guard.h"

#include <algorithm>
#include <cstddef>

namespace hadal {
namespace {

constexpr int kFirst = 4;            // steps of a choice before its rate counts
constexpr int kEvery = 64;           // one step of so many tries another choice
constexpr double kWeight = 0.08;     // of a new observation: about the last dozen steps count
constexpr double kMostWeight = 0.5;  // after a long time without any
constexpr double kOutlier = 3;       // a step that was interrupted counts as this many times the mean

}  // namespace

DraftGuard::DraftGuard(int most) : choices_(static_cast<size_t>(most) + 2) {}

double DraftGuard::rate(int choice) const {
  const Choice& c = choices_[static_cast<size_t>(choice)];
  return c.steps < kFirst ? 0 : c.tokens / c.seconds;
}

int DraftGuard::choose() {
  if (most() == 0) return 0;
  // First what the module says, all, nothing, and half: they tell which way to go.
  for (const int choice : {most() + 1, most(), 0, (most() + 1) / 2})
    if (choices_[static_cast<size_t>(choice)].steps < kFirst) return choice;
  int best = 0;
  for (int choice = 1; choice <= most() + 1; ++choice)
    if (rate(choice) > rate(best)) best = choice;
  // Uphill, to the best of its neighbours.
  for (const int beside : {best - 1, best + 1})
    if (beside >= 0 && beside <= most() + 1 && choices_[static_cast<size_t>(beside)].steps < kFirst) return beside;
  if (++steps_ % kEvery != 0) return best;
  const int others[] = {best - 1, best + 1, 0, most(), most() + 1};
  return std::clamp(others[static_cast<size_t>(trial_++) % std::size(others)], 0, most() + 1);
}

void DraftGuard::observe(int choice, double seconds, double tokens) {
  Choice& c = choices_[static_cast<size_t>(choice)];
  ++c.steps;
  ++observed_;
  if (c.steps <= kFirst) {  // plain means, so that the first steps do not weigh more than others
    c.seconds += (seconds - c.seconds) / c.steps;
    c.tokens += (tokens - c.tokens) / c.steps;
    c.last = observed_;
    return;
  }
  const double weight = std::min(kMostWeight, kWeight * static_cast<double>(observed_ - c.last));
  c.last = observed_;
  c.seconds += weight * (std::min(seconds, kOutlier * c.seconds) - c.seconds);
  c.tokens += weight * (tokens - c.tokens);
}

}  // namespace hadal
