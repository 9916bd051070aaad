// Where a device keeps the weights: which of them fit beside each other.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/context.h"

namespace hadal::deepseek_v41 {

// Place of the Engram tables on a device that has room for so many bytes, beside weights of so many; null when these, or what
// was asked for, do not fit. Of its own accord a device leaves a tenth to caches and steps before it takes the tables.
inline std::optional<TablePlace> place_tables(int64_t weights, int64_t tables, int64_t room, TablePlace asked) {
  const bool automatic = asked == TablePlace::automatic;
  const bool all_fit = weights + tables <= (automatic ? room / 10 * 9 : room);
  if (asked == TablePlace::device ? !all_fit : weights > room) return std::nullopt;
  return tables == 0 || (automatic ? all_fit : asked == TablePlace::device) ? TablePlace::device : TablePlace::host;
}

}  // namespace hadal::deepseek_v41
