// A picture of how latencies are spread over the points of a load, as SVG.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hadal {

struct HeatMapColumn {
  std::string name;            // "8"
  std::vector<double> values;  // milliseconds
  // What theory says of their mean, milliseconds or infinite: drawn as a ring, and the mean itself as a dot beside it.
  std::optional<double> expected = {};
};
struct HeatMap {
  std::string title;  // "Time to the first token"
  std::vector<HeatMapColumn> columns;
};

// One map beside the other. Rows are equal steps of the logarithm; the darker, the larger a row's share of its column; lines
// are the medians and the 99th percentiles. `x`: what the columns are, "Requests at once".
std::string heat_maps_svg(const std::string& title, const std::string& x, const std::vector<HeatMap>& maps);

}  // namespace hadal
