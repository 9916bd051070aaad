// Stop strings in a stream of text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hadal::text {

// Lets text through until a stop string appears, holding back whatever could still become one. Which stop string
// wins does not depend on how the text is split: the one that ends first, and of those that end together the one
// that begins first.
class StopMatcher {
 public:
  // Empty stop strings are ignored. `keep` leaves the stop string itself in the output.
  explicit StopMatcher(std::vector<std::string> stops, bool keep = false);

  // Returns the text that may be shown. Once stopped() it returns nothing.
  std::string push(std::string_view text);
  // The end of the stream: what was held back.
  std::string finish();

  bool stopped() const { return matched_ >= 0; }
  // The stop string that was found; only when stopped().
  const std::string& matched() const { return stops_[static_cast<std::size_t>(matched_)]; }

 private:
  std::vector<std::string> stops_;
  std::vector<std::vector<std::size_t>> failure_;  // Knuth-Morris-Pratt tables
  std::vector<std::size_t> state_;                 // by stop string: how many of its bytes the text ends with
  std::string held_;
  bool keep_;
  int matched_ = -1;
};

}  // namespace hadal::text
