# Makes a C++ source of the web page: cmake -DSOURCE=DIR -DOUTPUT=FILE.cc -P HadalPage.cmake
# index.html with style.css and app.js in their places becomes one document, known by its checksum.
file(READ ${SOURCE}/index.html page)
foreach(part "STYLE;style.css" "SCRIPT;app.js")
  list(GET part 0 name)
  list(GET part 1 file)
  file(READ ${SOURCE}/${file} text)
  string(REPLACE "/*${name}*/" "${text}" page "${page}")
endforeach()
string(SHA256 sum "${page}")
string(SUBSTRING ${sum} 0 32 sum)
file(WRITE ${OUTPUT} "#include \"serve/page/page.h\"

namespace hadal::serve {

std::string_view page_html() {
  return R\"hadal(${page})hadal\";
}
std::string_view page_etag() { return \"\\\"${sum}\\\"\"; }

}  // namespace hadal::serve
")
