#include "stage_picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "svg.h"

namespace hadal {
namespace {

constexpr double kLeft = 150, kTop = 72, kRow = 26, kBar = 480, kRight = 330;

}  // namespace

std::string stage_picture_svg(const std::string& title, const std::string& subtitle,
                              const std::vector<StageBar>& bars) {
  double most = 0;
  for (const StageBar& bar : bars) most = std::max({most, bar.ms, bar.floor_ms});
  const auto length = [&](double ms) { return most > 0 ? kBar * ms / most : 0; };
  std::string inside;
  const auto at = std::back_inserter(inside);
  double y = kTop;
  for (const StageBar& bar : bars) {
    const double share = bar.ms > 0 ? 100 * bar.floor_ms / bar.ms : 0;
    std::string text = fmt::format("{:.3g} ms", bar.ms);
    if (bar.floor_ms > 0)
      text += fmt::format(", {:.0f}% of the roof; {:.3g} MB, {:.3g} GFLOP", share, bar.megabytes, bar.gigaflops);
    fmt::format_to(at,
                   "<text x='{}' y='{:.1f}' text-anchor='end'>{}</text>\n"
                   "<rect x='{}' y='{:.1f}' width='{:.1f}' height='{}' fill='#bcd3ea' />\n"
                   "<rect x='{}' y='{:.1f}' width='{:.1f}' height='{}' fill='#08306b' />\n"
                   "<text x='{:.1f}' y='{:.1f}'>{}</text>\n",
                   kLeft - 8, y + 14, svg_text(bar.name), kLeft, y, length(bar.ms), kRow - 6, kLeft, y + 5,
                   length(std::min(bar.floor_ms, bar.ms)), kRow - 16, kLeft + length(bar.ms) + 8, y + 14, text);
    y += kRow;
  }
  const double width = kLeft + kBar + kRight, height = y + 40;
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} {1:.0f}' "
      "font-family='sans-serif' font-size='12' fill='#111'>\n<rect width='100%' height='100%' fill='white' />\n"
      "<text x='16' y='26' font-size='15' font-weight='bold'>{2}</text>\n<text x='16' y='46' fill='#444'>{3}</text>\n"
      "{4}<text x='16' y='{5:.0f}' fill='#444'>Light: the time of a stage. Dark: what its bytes and operations take "
      "at least.</text>\n</svg>\n",
      width, height, svg_text(title), svg_text(subtitle), inside, height - 14);
}

}  // namespace hadal
