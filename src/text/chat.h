// A conversation as the prompt encoders take it: plain data, independent of any wire protocol.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/json.h"

namespace hadal::text {

enum class Role { system, user, assistant, tool, latest_reminder };

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, normally an object
};

struct ChatMessage {
  Role role = Role::user;
  // A list of text parts arrives here joined by two newlines.
  std::string content;

  // Assistant only.
  std::string reasoning;  // empty when the client dropped it
  std::vector<ToolCall> tool_calls;
  bool prefix = false;  // the last message: generation continues it instead of opening a new turn

  std::string tool_call_id;  // tool only: the call that this is the result of
  std::vector<Json> tools;   // system only: function objects
  // A task of the search pipeline (action, query, authority, domain, title, read_url); empty for ordinary turns.
  std::string task;
};

struct PromptOptions {
  bool thinking = true;
  int effort = 75;            // 1 to 100, told to the model in thinking mode
  bool drop_thinking = true;  // forget the reasoning of turns before the last user turn; never done with tools
  bool generate = true;       // end the prompt with an open assistant turn
  bool open_calls = false;    // open a block of tool calls for the model, so that it must call one
  std::vector<Json> tools;    // function objects of the whole conversation
  std::optional<Json> response_schema;  // of a requested JSON answer
};

// none is not here: it means thinking = false. The names low, high and max are the model's own (50, 75, 100);
// minimal counts as low, medium and xhigh as high, as the official converter has it.
std::optional<int> effort_of_name(std::string_view name);

// The function object as the official converter writes it into the prompt: name, description and parameters in this
// order, with "" and {} where they are missing, and nothing else. Throws Error(invalid_argument) without a name.
Json canonical_tool(const Json& function);

}  // namespace hadal::text
