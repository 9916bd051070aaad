#include "text/prompt_v41.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace hadal::text {
namespace {

constexpr std::string_view kToolsBefore =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsAfter =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";
constexpr std::string_view kResponseFormat =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

constexpr std::array<std::string_view, 6> kTasks = {"action", "query", "authority", "domain", "title", "read_url"};

// One turn of the prompt: a message, or several user and tool messages in a row.
struct Turn {
  const ChatMessage* message;              // the first one; nullptr for an empty system message that was put in front
  Role role;                               // never tool
  std::vector<const ChatMessage*> blocks;  // user turns only
  std::string task;
};

std::vector<Turn> turns_of(const std::vector<ChatMessage>& messages) {
  std::vector<Turn> turns;
  for (const ChatMessage& message : messages) {
    const bool user = message.role == Role::user || message.role == Role::tool;
    if (user && !turns.empty() && turns.back().role == Role::user && turns.back().task.empty()) {
      turns.back().blocks.push_back(&message);
      turns.back().task = message.task;
      continue;
    }
    turns.push_back({&message, user ? Role::user : message.role, {}, message.task});
    if (user) turns.back().blocks.push_back(&message);
  }
  return turns;
}

// Tool results take the order of the calls that they answer, within the places that tool results occupy.
void order_results(Turn& turn, const std::vector<ToolCall>& calls) {
  std::vector<std::size_t> places;
  std::vector<const ChatMessage*> results;
  for (std::size_t i = 0; i < turn.blocks.size(); ++i) {
    if (turn.blocks[i]->role != Role::tool) continue;
    places.push_back(i);
    results.push_back(turn.blocks[i]);
  }
  const auto rank = [&](const ChatMessage* result) {
    const auto it =
        std::find_if(calls.begin(), calls.end(), [&](const ToolCall& call) { return call.id == result->tool_call_id; });
    return it == calls.end() ? std::size_t{0} : static_cast<std::size_t>(it - calls.begin());
  };
  std::stable_sort(results.begin(), results.end(),
                   [&](const ChatMessage* a, const ChatMessage* b) { return rank(a) < rank(b); });
  for (std::size_t i = 0; i < places.size(); ++i) turn.blocks[places[i]] = results[i];
}

class Renderer {
 public:
  Renderer(std::vector<Turn> turns, const PromptOptions& options) : turns_(std::move(turns)), options_(options) {
    bool tools = !options.tools.empty();
    for (const Turn& turn : turns_) tools |= turn.message && !turn.message->tools.empty();
    drop_ = options.drop_thinking && !tools;
    for (std::size_t i = 0; i < turns_.size(); ++i)
      if (turns_[i].role == Role::user || (turns_[i].role == Role::system && i > 0)) last_user_ = static_cast<int>(i);
    // What is generated comes after all finished turns: their reasoning is old, even where no user turn follows.
    const int size = static_cast<int>(turns_.size());
    if (options.generate)
      last_user_ = size > 0 && turns_.back().message && turns_.back().message->prefix ? size - 2 : size;
  }

  Prompt render() {
    prompt_.add_control(v41::bos);
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      if (i == 0) opening_of_conversation(turns_[0].role == Role::system);
      turn(i);
      task(i);
    }
    if (!options_.generate) return std::move(prompt_);
    const bool open = !turns_.empty() && (!turns_.back().task.empty() ||
                                          (turns_.back().role == Role::assistant && turns_.back().message->prefix));
    if (!open) {
      prompt_.add_control(v41::assistant);
      prompt_.add_control(options_.thinking ? v41::think_open : v41::think_close);
      if (options_.open_calls) markup("\n\n<｜DSML｜ calls>\n");
    }
    return std::move(prompt_);
  }

 private:
  // Text of the format itself: these three spellings in it are control tokens.
  void markup(std::string_view text) {
    while (!text.empty()) {
      std::size_t at = text.size();
      std::string_view found;
      for (const std::string_view name : {v41::dsml, v41::think_open, v41::think_close}) {
        const std::size_t i = text.find(name);
        if (i < at) {
          at = i;
          found = name;
        }
      }
      prompt_.add_text(text.substr(0, at));
      if (!found.empty()) prompt_.add_control(found);
      text.remove_prefix(at + found.size());
    }
  }

  void opening_of_conversation(bool system) {
    if (!system && !options_.thinking) return;
    prompt_.add_control(v41::system);
    if (options_.thinking)
      prompt_.add_text(
          fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
                      options_.effort));
  }

  void schemas(const std::vector<Json>& tools) {
    for (std::size_t i = 0; i < tools.size(); ++i) {
      if (i) prompt_.add_text("\n");
      prompt_.add_text(tools[i].dump());
    }
  }

  void tools_section(const std::vector<Json>& tools) {
    if (tools.empty()) return;
    prompt_.add_text("\n\n");
    markup(kToolsBefore);
    schemas(tools);
    prompt_.add_text(kToolsAfter);
  }

  void system_turn(std::size_t i) {
    const ChatMessage* message = turns_[i].message;
    if (i > 0) prompt_.add_control(v41::system);
    if (message) prompt_.add_text(message->content);
    const bool own_tools = message && !message->tools.empty();
    const bool first_tools = i == 0 && options_.tools.empty();
    if (i == 0) {
      tools_section(first_tools && own_tools ? message->tools : options_.tools);
      if (options_.response_schema) {
        prompt_.add_text(kResponseFormat);
        prompt_.add_text(options_.response_schema->dump());
      }
    }
    if (own_tools && !first_tools) {
      prompt_.add_text("\n\n### Updated Tool Schemas\n\n");
      schemas(message->tools);
    }
  }

  void user_turn(const Turn& turn) {
    prompt_.add_control(v41::user);
    for (std::size_t b = 0; b < turn.blocks.size(); ++b) {
      const ChatMessage& block = *turn.blocks[b];
      if (b) prompt_.add_text("\n\n");
      if (block.role == Role::tool) prompt_.add_text("<tool_result>");
      prompt_.add_text(block.content);
      if (block.role == Role::tool) prompt_.add_text("</tool_result>");
    }
  }

  void parameter(std::string_view name, const Json& value) {
    const std::string* text = value.as_string();
    markup("<｜DSML｜ parameter name=\"");
    prompt_.add_text(name);
    prompt_.add_text(text ? "\" string=\"true\">" : "\" string=\"false\">");
    prompt_.add_text(text ? *text : value.dump());
    markup("</｜DSML｜ parameter>");
  }

  void call(const ToolCall& call) {
    markup("<｜DSML｜ invoke name=\"");
    prompt_.add_text(call.name);
    prompt_.add_text("\">\n");
    std::optional<Json> arguments = Json::try_parse(call.arguments);
    if (arguments && arguments->as_string()) arguments = Json::try_parse(*arguments->as_string());
    const Json::Object* object = arguments ? arguments->as_object() : nullptr;
    if (object) {
      for (std::size_t i = 0; i < object->size(); ++i) {
        if (i) prompt_.add_text("\n");
        parameter((*object)[i].first, (*object)[i].second);
      }
    } else {
      parameter("arguments", Json(call.arguments));
    }
    markup("\n</｜DSML｜ invoke>");
  }

  void assistant_turn(std::size_t i) {
    const ChatMessage& message = *turns_[i].message;
    const bool after_task = i > 0 && !turns_[i - 1].task.empty();
    const bool bare = message.content.empty() && message.tool_calls.empty();
    if (!after_task) {
      prompt_.add_control(v41::assistant);
      const bool keep = options_.thinking && (!drop_ || static_cast<int>(i) > last_user_);
      if (keep) {
        prompt_.add_control(v41::think_open);
        prompt_.add_text(message.reasoning);
      }
      // A prefix that has not got beyond its reasoning is continued there.
      if (!(keep && message.prefix && bare)) prompt_.add_control(v41::think_close);
    }
    prompt_.add_text(message.content);
    if (!message.tool_calls.empty()) {
      markup("\n\n<｜DSML｜ calls>\n");
      for (std::size_t c = 0; c < message.tool_calls.size(); ++c) {
        if (c) prompt_.add_text("\n");
        call(message.tool_calls[c]);
      }
      markup("\n</｜DSML｜ calls>");
    }
    if (!message.prefix) prompt_.add_control(v41::eos);
  }

  void turn(std::size_t i) {
    switch (turns_[i].role) {
      case Role::system: return system_turn(i);
      case Role::user:
      case Role::tool: return user_turn(turns_[i]);
      case Role::assistant: return assistant_turn(i);
      case Role::latest_reminder:
        prompt_.add_control(v41::latest_reminder);
        prompt_.add_text(turns_[i].message->content);
        return;
    }
  }

  void task(std::size_t i) {
    const std::string& task = turns_[i].task;
    if (task.empty()) return;
    if (i + 1 < turns_.size() && turns_[i + 1].role != Role::assistant && turns_[i + 1].role != Role::latest_reminder)
      return;
    if (task == "action") {
      prompt_.add_control(v41::assistant);
      prompt_.add_control(options_.thinking ? v41::think_open : v41::think_close);
    }
    prompt_.add_control(fmt::format("<｜{}｜>", task));
  }

  std::vector<Turn> turns_;
  const PromptOptions& options_;
  Prompt prompt_;
  bool drop_ = true;
  int last_user_ = -1;
};

}  // namespace

Prompt encode_prompt_v41(const std::vector<ChatMessage>& messages, const PromptOptions& options) {
  if (options.effort < 1 || options.effort > 100)
    fail(ErrorKind::invalid_argument, "reasoning effort {} is outside 1 to 100", options.effort);
  for (const ChatMessage& message : messages) {
    if (message.prefix && (message.role != Role::assistant || &message != &messages.back()))
      fail(ErrorKind::invalid_argument, "prefix is only possible on a last message of the assistant");
    if (!message.task.empty() && std::find(kTasks.begin(), kTasks.end(), message.task) == kTasks.end())
      fail(ErrorKind::invalid_argument, "unknown task \"{}\"; there are {}", message.task, fmt::join(kTasks, ", "));
  }
  std::vector<Turn> turns = turns_of(messages);
  const std::vector<ToolCall>* calls = nullptr;  // the latest
  for (Turn& turn : turns) {
    if (turn.role == Role::assistant && !turn.message->tool_calls.empty()) calls = &turn.message->tool_calls;
    if (turn.role == Role::user && calls) order_results(turn, *calls);
  }
  const bool needs_system = !options.tools.empty() || options.response_schema;
  if (needs_system && (turns.empty() || turns[0].role != Role::system))
    turns.insert(turns.begin(), {nullptr, Role::system, {}, {}});
  return Renderer(std::move(turns), options).render();
}

std::optional<int> effort_of_name(std::string_view name) {
  if (name == "low" || name == "minimal") return 50;
  if (name == "medium" || name == "high" || name == "xhigh") return 75;
  if (name == "max") return 100;
  return std::nullopt;
}

Json canonical_tool(const Json& function) {
  const Json* name = function.find("name");
  if (!name || !name->as_string() || name->as_string()->empty())
    fail(ErrorKind::invalid_argument, "a tool has no function name");
  const auto member = [&](const char* key, const Json& otherwise) {
    const Json* value = function.find(key);
    return std::pair<std::string, Json>(key, value && !value->is_null() ? *value : otherwise);
  };
  return Json(
      Json::Object{{"name", *name}, member("description", Json("")), member("parameters", Json(Json::Object{}))});
}

}  // namespace hadal::text
