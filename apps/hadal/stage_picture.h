// A picture of where the time of a step goes, as SVG.
#pragma once

#include <string>
#include <vector>

namespace hadal {

struct StageBar {
  std::string name;
  double ms = 0;
  double floor_ms = 0;  // 0 = none is known
  double megabytes = 0;
  double gigaflops = 0;
};

// A bar for each stage as long as its time; the dark part is what the machine needs at least.
std::string stage_picture_svg(const std::string& title, const std::string& subtitle, const std::vector<StageBar>& bars);

}  // namespace hadal
