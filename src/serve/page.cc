#include "serve/page.h"

namespace hadal::serve {

std::string_view page() {
  return "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Hadal</title><p>Hadal answers here. "
         "<code>POST /v1/chat/completions</code> talks with the model; <code>docs/serving.md</code> lists all endpoints.</p></html>\n";
}

}  // namespace hadal::serve
