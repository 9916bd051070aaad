// The web page at "/": one HTML document that needs nothing from anywhere else, made from the files of this folder.
#pragma once

#include <string_view>

namespace hadal::serve {

inline constexpr std::string_view kPageType = "text/html; charset=utf-8";
std::string_view page_html();
std::string_view page_etag();  // with its quotes; changes with the page

}  // namespace hadal::serve
