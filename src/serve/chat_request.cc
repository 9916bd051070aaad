#include "serve/chat_request.h"

#include <fmt/format.h>

namespace hadal::serve {

using text::ChatMessage;
using text::Json;
using text::Role;

namespace {

std::vector<text::ToolCall> read_tool_calls(const Fields& message) {
  std::vector<text::ToolCall> calls;
  const Json::Array* list = message.array("tool_calls");
  if (list == nullptr) return calls;
  for (size_t i = 0; i < list->size(); ++i) {
    const Fields call((*list)[i], fmt::format("{}[{}]", message.path("tool_calls"), i));
    const std::optional<Fields> function = call.object("function");
    if (!function) call.refuse("function", "an object");
    text::ToolCall& c = calls.emplace_back();
    c.id = call.string("id").value_or("");
    c.name = function->required_string("name");
    // A string of JSON; some clients send the object itself.
    const Json* arguments = function->find("arguments");
    if (arguments != nullptr && arguments->as_string() == nullptr && arguments->as_object() == nullptr)
      function->refuse("arguments", "a string that holds a JSON object");
    if (arguments != nullptr)
      c.arguments = arguments->as_string() != nullptr ? *arguments->as_string() : arguments->dump();
  }
  return calls;
}

ChatMessage read_message(const Json& json, const std::string& path) {
  const Fields m(json, path);
  ChatMessage message;
  const std::string role = m.required_string("role");
  if (role == "system" || role == "developer") {
    message.role = Role::system;
  } else if (role == "user") {
    message.role = Role::user;
  } else if (role == "assistant") {
    message.role = Role::assistant;
  } else if (role == "tool" || role == "function") {
    message.role = Role::tool;
  } else if (role == "latest_reminder") {
    message.role = Role::latest_reminder;
  } else {
    m.refuse("role", "system, developer, user, assistant or tool");
  }
  const Json* content = m.find("content");
  if (content != nullptr) message.content = read_content(*content, m.path("content"));
  if (message.role == Role::assistant) {
    message.reasoning = m.string("reasoning_content").value_or("");
    if (message.reasoning.empty() && m.find("reasoning") != nullptr && m.find("reasoning")->as_string() != nullptr)
      message.reasoning = *m.find("reasoning")->as_string();
    message.tool_calls = read_tool_calls(m);
    message.prefix = m.boolean("prefix").value_or(false);
  } else if (content == nullptr) {
    m.refuse("content", "a string or a list of parts");
  }
  if (message.role == Role::tool) message.tool_call_id = m.string("tool_call_id").value_or("");
  return message;
}

void read_tools(const Fields& body, Conversation& c) {
  if (const Json::Array* tools = body.array("tools"))
    for (size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], fmt::format("{}[{}]", body.path("tools"), i));
      if (const std::string type = tool.string("type").value_or("function"); type != "function")
        tool.refuse("type", "function");
      const Json* function = tool.find("function");
      if (function == nullptr) tool.refuse("function", "an object");
      add_tool(c, *function, tool.path("function"));
    }
  if (const Json* choice = body.find("tool_choice")) {
    constexpr const char* kExpected = R"(none, auto, required or {"type": "function", "function": {"name": ...}})";
    if (const std::string* mode = choice->as_string()) {
      choose_tools(c, body, *mode, kExpected);
    } else {
      if (choice->as_object() == nullptr) body.refuse("tool_choice", kExpected);
      const std::optional<Fields> function = body.object("tool_choice")->object("function");
      if (!function) body.refuse("tool_choice", kExpected);
      choose_tool(c, *function);
    }
  }
  c.one_call = !body.boolean("parallel_tool_calls").value_or(true);
}

AnswerFormat read_format(const Fields& body) {
  AnswerFormat format;
  const std::optional<Fields> object = body.object("response_format");
  if (!object) return format;
  const std::string type = object->required_string("type");
  if (type == "json_object") {
    format.kind = AnswerFormat::json_object;
  } else if (type == "json_schema") {
    format.kind = AnswerFormat::json_schema;
    const std::optional<Fields> named = object->object("json_schema");
    if (!named) object->refuse("json_schema", "an object with the schema");
    const std::optional<Fields> schema = named->object("schema");
    if (!schema) named->refuse("schema", "a JSON schema");
    format.schema = schema->json();
  } else if (type != "text") {
    object->refuse("type", "text, json_object or json_schema");
  }
  return format;
}

Thinking read_thinking(const Fields& body) {
  Thinking thinking;
  if (const std::optional<Fields> kwargs = body.object("chat_template_kwargs")) {
    read_effort(*kwargs, "reasoning_effort", thinking);
    for (const char* name : {"thinking", "enable_thinking"})
      if (const std::optional<bool> on = kwargs->boolean(name)) thinking.on = *on;
    thinking.drop = kwargs->boolean("drop_thinking").value_or(true);
  }
  read_effort(body, "reasoning_effort", thinking);
  read_thinking_type(body, thinking);
  return thinking;
}

}  // namespace

Conversation read_chat(const Fields& body) {
  Conversation c;
  const Json::Array& messages = body.required_array("messages");
  for (size_t i = 0; i < messages.size(); ++i)
    c.messages.push_back(read_message(messages[i], fmt::format("messages[{}]", i)));
  read_tools(body, c);
  c.format = read_format(body);
  c.thinking = read_thinking(body);
  c.generate = body.boolean("add_generation_prompt").value_or(true);
  if (body.boolean("continue_final_message").value_or(false)) {
    if (c.messages.empty() || c.messages.back().role != Role::assistant)
      throw ApiError(400, "continue_final_message needs a last message of the assistant", "continue_final_message",
                     "invalid_value");
    c.messages.back().prefix = true;
  }
  if (!c.messages.empty() && c.messages.back().prefix) c.generate = true;
  return c;
}

}  // namespace hadal::serve
