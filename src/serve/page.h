// The web page at "/".
#pragma once

#include <string_view>

namespace hadal::serve {

// One HTML document that needs nothing from anywhere else.
std::string_view page();

}  // namespace hadal::serve
