// Fields that several endpoints share, from JSON to the engine's request.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/fields.h"
#include "serve/service.h"
#include "text/chat.h"

namespace hadal::serve {

// Sampling and stopping as OpenAI's endpoints and vLLM's extensions of them have it. Neither prompt nor max_tokens.
void read_sampling(const Fields& body, const Service& service, Request& request, TextOptions& text);
// "stop" or "stop_sequences": a string or a list of them.
std::vector<std::string> read_stops(const Fields& body, std::string_view name);
// Throws for fields that would change the answer and are not implemented, unless they ask for nothing.
void refuse_unsupported(const Fields& body, std::initializer_list<std::string_view> names);

// Checks prompt and max_tokens against the context, or chooses max_tokens when the client left it open. `field` is its name.
void fit_context(const Service& service, Request& request, std::optional<int64_t> max_tokens, std::string_view field);

// Whether and how much to reason.
struct Thinking {
  bool on = false;
  int effort = 75;
  bool drop = true;  // the reasoning of earlier turns
};
// An effort: none, minimal, low, medium, high, xhigh, max, or 1 to 100.
void read_effort(const Fields& object, std::string_view name, Thinking& thinking);
// {"type": "enabled" | "disabled" | "adaptive"}
void read_thinking_type(const Fields& body, Thinking& thinking);

struct ToolChoice {
  enum Mode { automatic, none, required, named } mode = automatic;
  std::string name;
};
struct AnswerFormat {
  enum Kind { text, json_object, json_schema } kind = text;
  text::Json schema;
};
// Text of a content field: a string or a list of text parts, which are joined by two newlines. Images are refused.
std::string read_content(const text::Json& content, const std::string& path);

// A conversation, whatever protocol it came by.
struct Conversation {
  std::vector<text::ChatMessage> messages;
  std::vector<text::Json> tools;  // canonical function objects
  std::vector<bool> strict;       // by tool: its calls must be valid against its schema
  ToolChoice tool_choice;
  bool one_call = false;  // no parallel tool calls
  AnswerFormat format;
  Thinking thinking;
  bool generate = true;  // end the prompt with an open turn of the assistant
};
// A function object, checked; throws for a second tool of the same name.
void add_tool(Conversation& conversation, const text::Json& function, const std::string& path);
// tool_choice as a word of OpenAI's; refuses others, naming what was expected.
void choose_tools(Conversation& conversation, const Fields& body, const std::string& mode, const char* expected);
// tool_choice as the tool that `at` names; refuses one that is not there.
void choose_tool(Conversation& conversation, const Fields& at);
// Renders the prompt and the constraint into `request`, and says how the answer is to be read. Throws for what cannot be
// enforced.
void render(const Service& service, const Conversation& conversation, Request& request, TextOptions& text);

}  // namespace hadal::serve
