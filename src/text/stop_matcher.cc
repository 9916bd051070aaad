#include "text/stop_matcher.h"

#include <algorithm>

namespace hadal::text {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool keep) : stops_(std::move(stops)), keep_(keep) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
  for (const std::string& stop : stops_) {
    std::vector<std::size_t> table(stop.size() + 1, 0);
    for (std::size_t i = 1, k = 0; i < stop.size(); ++i) {
      while (k > 0 && stop[i] != stop[k]) k = table[k];
      if (stop[i] == stop[k]) ++k;
      table[i + 1] = k;
    }
    failure_.push_back(std::move(table));
  }
  state_.assign(stops_.size(), 0);
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  for (const char c : text) {
    held_ += c;
    for (std::size_t s = 0; s < stops_.size(); ++s) {
      std::size_t& k = state_[s];
      while (k > 0 && stops_[s][k] != c) k = failure_[s][k];
      if (stops_[s][k] == c) ++k;
      if (k < stops_[s].size()) continue;
      if (matched_ < 0 || stops_[s].size() > matched().size()) matched_ = static_cast<int>(s);
    }
    if (stopped()) {
      std::string out = std::move(held_);
      held_.clear();
      if (!keep_) out.resize(out.size() - matched().size());
      return out;
    }
  }
  const std::size_t hold = state_.empty() ? 0 : *std::max_element(state_.begin(), state_.end());
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() {
  std::fill(state_.begin(), state_.end(), 0);
  return stopped() ? std::string() : std::move(held_);
}

}  // namespace hadal::text
