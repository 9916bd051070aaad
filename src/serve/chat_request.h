// The conversation of an OpenAI chat request.
#pragma once

#include "serve/request_fields.h"

namespace hadal::serve {

// messages, tools, tool_choice, response_format and what says whether to think.
Conversation read_chat(const Fields& body);

}  // namespace hadal::serve
