// What the pictures share.
#pragma once

#include <string>

namespace hadal {

// Text as it stands between two tags.
inline std::string svg_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

}  // namespace hadal
