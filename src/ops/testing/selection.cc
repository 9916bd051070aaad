#include "ops/testing/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace hadal::testing {

void check_selection(Report& report, const std::string& name, const std::vector<double>& scores,
                     const std::vector<double>& tolerances, int64_t k, const std::vector<int32_t>& chosen,
                     const std::function<int64_t(int32_t)>& kind) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto count = static_cast<int32_t>(scores.size());
  const auto finite = std::count_if(scores.begin(), scores.end(), [](double s) { return s != -kInfinity; });
  const int64_t want = std::min<int64_t>(k, finite);
  if (static_cast<int64_t>(chosen.size()) != want) {
    report.fail(fmt::format("{}: {} chosen, expected {}", name, chosen.size(), want));
    return;
  }
  std::vector<bool> is_chosen(count);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const int32_t item = chosen[i];
    if (item < 0 || item >= count || scores[item] == -kInfinity || (i > 0 && item <= chosen[i - 1])) {
      report.fail(fmt::format("{}: entry {} is {}: out of range, not eligible or not ascending", name, i, item));
      return;
    }
    is_chosen[item] = true;
  }

  // Weakest chosen against strongest left out, each moved by its tolerance in favour of the choice.
  int32_t weakest = -1, strongest = -1;
  std::map<int64_t, int32_t> left_out;  // lowest item of a kind that was left out
  for (int32_t item = 0; item < count; ++item) {
    if (scores[item] == -kInfinity) continue;
    if (is_chosen[item]) {
      if (weakest < 0 || scores[item] + tolerances[item] < scores[weakest] + tolerances[weakest]) weakest = item;
      if (const auto before = left_out.find(kind(item)); before != left_out.end())
        report.fail(
            fmt::format("{}: {} was chosen and not {}, which comes first among equals", name, item, before->second));
    } else {
      if (strongest < 0 || scores[item] - tolerances[item] > scores[strongest] - tolerances[strongest])
        strongest = item;
      left_out.emplace(kind(item), item);
    }
  }
  if (weakest < 0 || strongest < 0) return;
  if (scores[strongest] <= scores[weakest]) return;
  report.add((scores[strongest] - scores[weakest]) / (tolerances[strongest] + tolerances[weakest]), [&] {
    return fmt::format("{}: {} ({:.9g}) was chosen and not {} ({:.9g})", name, weakest, scores[weakest], strongest,
                       scores[strongest]);
  });
}

}  // namespace hadal::testing
