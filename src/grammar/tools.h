// Tool calls in the markup of DeepSeek-V4.1 (spec 6.3).
#pragma once

#include <string>
#include <vector>

#include "grammar/machine.h"
#include "text/json.h"

namespace hadal::grammar {

struct Tool {
  std::string name;
  text::Json parameters;  // JSON schema of an object; null or {}: no parameters
  bool enforce = true;    // false: any parameters, so that a schema that cannot be enforced is not an error
};

struct ToolChoice {
  enum Kind {
    automatic,  // an answer, then calls or none; with a schema of the answer either that or calls
    required,   // calls alone, at least one
    named,      // calls of `name` alone
  } kind = automatic;
  std::string name;
  bool parallel = true;  // more than one call
  bool opened = false;   // the prompt ends behind the opening tag of the block (PromptOptions::open_calls)
};

// Writes rule 0: what may come behind the reasoning, end of sequence included. Parameters come in the order of the schema, each
// once. Throws Error(invalid_argument) for a schema that cannot be enforced, names that the markup cannot hold, and an unknown
// tool in `choice`. `answer`: the JSON schema of an answer without calls, where the choice allows one; nullptr: any text.
void write_tool_calls(Machine& machine, const std::vector<Tool>& tools, const ToolChoice& choice,
                      const text::Json* answer = nullptr);

}  // namespace hadal::grammar
