#include "heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench_load.h"
#include "svg.h"

namespace hadal {
namespace {

constexpr int kRows = 24;
constexpr double kColumn = 56, kRow = 14, kLeft = 72, kTop = 76, kGap = 40;

// From almost white to dark blue.
std::string colour(double share) {
  const double s = std::sqrt(share);
  const auto mix = [&](double from, double to) { return static_cast<int>(from + (to - from) * s); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(242, 8), mix(246, 48), mix(250, 107));
}

std::string milliseconds(double ms) {
  return ms >= 1000 ? fmt::format("{:.3g} s", ms / 1000) : fmt::format("{:.3g} ms", ms);
}

void write_map(const HeatMap& map, const std::string& x_label, double left, std::string& out) {
  const auto at = std::back_inserter(out);
  double least = 1e300, most = 0;
  for (const HeatMapColumn& c : map.columns)
    for (const double v : c.values) {
      least = std::min(least, std::max(v, 1e-3));
      most = std::max(most, std::max(v, 1e-3));
    }
  for (const HeatMapColumn& c : map.columns)
    if (c.expected && std::isfinite(*c.expected)) most = std::max(most, *c.expected);
  const double width = kColumn * static_cast<double>(map.columns.size()), height = kRow * kRows;
  fmt::format_to(at, "<text x='{}' y='{}' font-weight='bold'>{}</text>\n", left, kTop - 14, svg_text(map.title));
  if (most == 0) {
    fmt::format_to(at, "<text x='{}' y='{}'>no values</text>\n", left, kTop + 14);
    return;
  }
  most = std::max(most, least * 1.1);
  const double step = std::log(most / least) / kRows;
  const auto y_of = [&](double ms) {
    return kTop + height * (1 - std::log(std::max(ms, least) / least) / (step * kRows));
  };
  std::string middle, tail, means;
  for (size_t i = 0; i < map.columns.size(); ++i) {
    const HeatMapColumn& c = map.columns[i];
    const double x = left + kColumn * static_cast<double>(i);
    std::vector<int> counts(kRows, 0);
    for (const double v : c.values)
      ++counts[static_cast<size_t>(
          std::clamp(static_cast<int>(std::log(std::max(v, least) / least) / step), 0, kRows - 1))];
    for (int r = 0; r < kRows; ++r) {
      const double share = c.values.empty() ? 0 : counts[static_cast<size_t>(r)] / static_cast<double>(c.values.size());
      fmt::format_to(at,
                     "<rect x='{:.1f}' y='{:.1f}' width='{}' height='{}' fill='{}'><title>{}: {:.1f}% from {} to "
                     "{}</title></rect>\n",
                     x, kTop + height - kRow * (r + 1), kColumn - 1, kRow - 1, colour(share), svg_text(c.name),
                     share * 100, milliseconds(least * std::exp(step * r)),
                     milliseconds(least * std::exp(step * (r + 1))));
    }
    fmt::format_to(at, "<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n", x + kColumn / 2,
                   kTop + height + 18, svg_text(c.name));
    if (c.values.empty()) continue;
    const Percentiles p = percentiles(c.values);
    if (c.expected) {
      const double y = std::isfinite(*c.expected) ? y_of(*c.expected) : kTop;
      fmt::format_to(
          std::back_inserter(means),
          "<circle cx='{0:.1f}' cy='{1:.1f}' r='5' fill='none' stroke='#15803d' stroke-width='2'><title>expected "
          "mean: {2}</title></circle>\n<circle cx='{0:.1f}' cy='{3:.1f}' r='4' fill='#15803d'><title>mean: "
          "{4}</title></circle>\n<text x='{0:.1f}' y='{5:.1f}' text-anchor='middle' fill='#15803d' "
          "font-size='10'>{4} / {2}</text>\n",
          x + kColumn / 2, y, std::isfinite(*c.expected) ? milliseconds(*c.expected) : "no end", y_of(p.mean),
          milliseconds(p.mean), kTop + height + 56 + 12 * static_cast<double>(i % 2));
    }
    fmt::format_to(std::back_inserter(middle), "{:.1f},{:.1f} ", x + kColumn / 2, y_of(p.p50));
    fmt::format_to(std::back_inserter(tail), "{:.1f},{:.1f} ", x + kColumn / 2, y_of(p.p99));
  }
  for (int r = 0; r <= kRows; r += 6)
    fmt::format_to(at, "<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>\n", left - 6,
                   kTop + height - kRow * r + 4, milliseconds(least * std::exp(step * r)));
  for (const auto& [points, dash] : {std::pair{&middle, ""}, {&tail, " stroke-dasharray='5 4'"}})
    fmt::format_to(at, "<polyline points='{}' fill='none' stroke='#c2410c' stroke-width='2'{}/>\n", *points, dash);
  fmt::format_to(at, "<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n{}", left + width / 2,
                 kTop + height + 38, svg_text(x_label), means);
}

}  // namespace

std::string heat_maps_svg(const std::string& title, const std::string& x, const std::vector<HeatMap>& maps) {
  std::string inside;
  double left = kLeft;
  for (const HeatMap& map : maps) {
    write_map(map, x, left, inside);
    left += std::max(200.0, kColumn * static_cast<double>(map.columns.size())) + kGap + kLeft;
  }
  const double width = left - kLeft, height = kTop + kRow * kRows + 100;
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} {1:.0f}' "
      "font-family='sans-serif' font-size='12' fill='#111'>\n<rect width='100%' height='100%' fill='white' />\n"
      "<text x='{2}' y='26' font-size='15' font-weight='bold'>{3}</text>\n{4}"
      "<text x='{2}' y='{5:.0f}' fill='#444'>Darker: a larger share of the column. Line: median; dashed: 99th "
      "percentile. Dot and ring: mean, and what theory expects of it.</text>\n</svg>\n",
      width, height, kLeft, svg_text(title), inside, height - 14);
}

}  // namespace hadal
