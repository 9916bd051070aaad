#include "base/dtype.h"

namespace hadal {

const std::array<float, 256>& e4m3_table() {
  static const auto table = [] {
    std::array<float, 256> t{};
    for (int i = 0; i < 256; ++i) t[static_cast<size_t>(i)] = from_e4m3(static_cast<uint8_t>(i));
    return t;
  }();
  return table;
}

}  // namespace hadal
