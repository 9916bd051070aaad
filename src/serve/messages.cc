// POST /v1/messages and /v1/messages/count_tokens: Anthropic's protocol.
#include <fmt/format.h>

#include "serve/answer.h"
#include "serve/request_fields.h"

namespace hadal::serve {
namespace {

using text::ChatMessage;
using text::Json;
using text::OutputEvent;
using text::Role;

// ---- the request ---------------------------------------------------------------------------------------------------

// The content of a message may hold several of ours: each tool result is one.
void read_blocks(const Json& content, const std::string& path, Role role, std::vector<ChatMessage>& out) {
  ChatMessage message;
  message.role = role;
  if (const std::string* text = content.as_string()) {
    message.content = *text;
    out.push_back(std::move(message));
    return;
  }
  const Json::Array* blocks = content.as_array();
  if (blocks == nullptr) refuse_value(path, &content, "a string or a list of blocks");
  bool anything = false;
  for (size_t i = 0; i < blocks->size(); ++i) {
    const Fields block((*blocks)[i], fmt::format("{}[{}]", path, i));
    const std::string type = block.required_string("type");
    if (type == "text") {
      if (!message.content.empty()) message.content += "\n\n";
      message.content += block.required_string("text");
      anything = true;
    } else if (type == "thinking" && role == Role::assistant) {
      message.reasoning += block.required_string("thinking");
    } else if (type == "redacted_thinking" && role == Role::assistant) {
      continue;
    } else if (type == "tool_use" && role == Role::assistant) {
      const std::optional<Fields> input = block.object("input");
      message.tool_calls.push_back(
          {block.required_string("id"), block.required_string("name"), input ? input->json().dump() : "{}"});
      anything = true;
    } else if (type == "tool_result" && role == Role::user) {
      if (anything) out.push_back(std::exchange(message, ChatMessage{}));
      anything = false;
      ChatMessage result;
      result.role = Role::tool;
      result.tool_call_id = block.required_string("tool_use_id");
      if (const Json* inner = block.find("content")) result.content = read_content(*inner, block.path("content"));
      if (block.boolean("is_error").value_or(false)) result.content = "Error: " + result.content;
      out.push_back(std::move(result));
    } else if (type == "image" || type == "document") {
      throw ApiError(400, fmt::format("{} is of type {}; this server reads text only", block.path(), type),
                     block.path(), "unsupported_content");
    } else {
      block.refuse("type", role == Role::assistant ? "text, thinking or tool_use" : "text or tool_result");
    }
  }
  if (anything || (role == Role::assistant && !message.reasoning.empty())) out.push_back(std::move(message));
}

Conversation read_conversation(const Fields& body) {
  Conversation c;
  if (const Json* system = body.find("system")) {
    c.messages.emplace_back().role = Role::system;
    c.messages.back().content = read_content(*system, "system");
  }
  const Json::Array& messages = body.required_array("messages");
  if (messages.empty()) throw ApiError(400, "messages is empty, expected at least one message", "messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Fields m(messages[i], fmt::format("messages[{}]", i));
    const std::string role = m.required_string("role");
    if (role != "user" && role != "assistant" && role != "system") m.refuse("role", "user or assistant");
    const Json* content = m.find("content");
    if (content == nullptr) m.refuse("content", "a string or a list of blocks");
    read_blocks(*content, m.path("content"),
                role == "user"        ? Role::user
                : role == "assistant" ? Role::assistant
                                      : Role::system,
                c.messages);
  }
  // A last turn of the assistant is a beginning that the model goes on with.
  if (!c.messages.empty() && c.messages.back().role == Role::assistant && c.messages.back().tool_calls.empty())
    c.messages.back().prefix = true;

  if (const Json::Array* tools = body.array("tools"))
    for (size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], fmt::format("tools[{}]", i));
      if (const std::string type = tool.string("type").value_or("custom"); type != "custom")
        throw ApiError(400,
                       fmt::format("{} is {}; this server runs no tools of its own, expected custom", tool.path("type"),
                                   json_quoted(type)),
                       tool.path("type"));
      Json::Object function{{"name", tool.required_string("name")},
                            {"description", tool.string("description").value_or("")}};
      if (const std::optional<Fields> schema = tool.object("input_schema"))
        function.emplace_back("parameters", schema->json());
      add_tool(c, Json(std::move(function)), tool.path());
    }
  if (const std::optional<Fields> choice = body.object("tool_choice")) {
    const std::string type = choice->required_string("type");
    if (type == "none") {
      c.tool_choice.mode = ToolChoice::none;
    } else if (type == "any") {
      c.tool_choice.mode = ToolChoice::required;
    } else if (type == "tool") {
      choose_tool(c, *choice);
    } else if (type != "auto") {
      choice->refuse("type", "auto, any, tool or none");
    }
    c.one_call = choice->boolean("disable_parallel_tool_use").value_or(false);
  }
  read_thinking_type(body, c.thinking);
  if (const std::optional<Fields> thinking = body.object("thinking"))
    thinking->integer("budget_tokens", 0, int64_t{1} << 40);
  if (const std::optional<Fields> output = body.object("output_config")) {
    // An effort alone does not turn thinking on, as at Anthropic.
    Thinking effort;
    read_effort(*output, "effort", effort);
    if (effort.on) c.thinking.effort = effort.effort;
    if (const std::optional<Fields> format = output->object("format")) {
      if (format->required_string("type") != "json_schema") format->refuse("type", "json_schema");
      const std::optional<Fields> schema = format->object("schema");
      if (!schema) format->refuse("schema", "a JSON schema");
      c.format = {AnswerFormat::json_schema, schema->json()};
    }
  }
  return c;
}

// ---- the answer ----------------------------------------------------------------------------------------------------

struct Stop {
  std::string reason, sequence;  // JSON text
};

Stop stop_of(const ChoiceEnd& end) {
  if (end.stop) return {"\"stop_sequence\"", json_quoted(*end.stop)};
  if (end.reason == FinishReason::length) return {"\"max_tokens\"", "null"};
  return {end.calls > 0 ? "\"tool_use\"" : "\"end_turn\"", "null"};
}

std::string usage(const Totals& t) {
  return fmt::format(
      "{{\"input_tokens\": {}, \"cache_creation_input_tokens\": 0, \"cache_read_input_tokens\": {}, \"output_tokens\": "
      "{}}}",
      t.prompt_tokens - t.cached_tokens, t.cached_tokens, t.tokens);
}

std::string tool_id() { return new_id("toolu_"); }

class Whole final : public CollectingSink {
 public:
  Whole(const Call& call, std::string model)
      : CollectingSink(call.exchange, Dialect::anthropic, 1, false), model_(std::move(model)) {}

 private:
  std::string body(const std::vector<Answer>& answers, const Totals& totals) override {
    const Answer& a = answers.front();
    std::string blocks;
    const auto block = [&](const std::string& text) { blocks += (blocks.empty() ? "" : ", ") + text; };
    if (!a.reasoning.empty())
      block(fmt::format("{{\"type\": \"thinking\", \"thinking\": {}, \"signature\": \"\"}}", json_quoted(a.reasoning)));
    if (!a.content.empty()) block(fmt::format("{{\"type\": \"text\", \"text\": {}}}", json_quoted(a.content)));
    for (const text::ToolCall& c : a.calls)
      block(fmt::format("{{\"type\": \"tool_use\", \"id\": \"{}\", \"name\": {}, \"input\": {}}}", tool_id(),
                        json_quoted(c.name), c.arguments));
    const Stop stop = stop_of(a.end);
    return fmt::format(
        "{{\"id\": \"{}\", \"type\": \"message\", \"role\": \"assistant\", \"model\": {}, \"content\": [{}], "
        "\"stop_reason\": {}, "
        "\"stop_sequence\": {}, \"usage\": {}}}",
        new_id("msg_"), json_quoted(model_), blocks, stop.reason, stop.sequence, usage(totals));
  }
  const std::string model_;
};

class Streamed final : public AnswerSink {
 public:
  Streamed(const Call& call, std::string model, int64_t prompt_tokens)
      : events_(call.exchange), model_(std::move(model)) {
    so_far_.prompt_tokens = prompt_tokens;
  }

  void begin() override {
    events_.begin();
    send("message_start", fmt::format("\"message\": {{\"id\": \"{}\", \"type\": \"message\", \"role\": \"assistant\", "
                                      "\"model\": {}, \"content\": [], "
                                      "\"stop_reason\": null, \"stop_sequence\": null, \"usage\": {}}}",
                                      new_id("msg_"), json_quoted(model_), usage(so_far_)));
    send("ping", "");
    events_.flush();
  }

  void add(int, std::span<const OutputEvent> events, std::span<const GeneratedToken>) override {
    for (const OutputEvent& e : events) {
      switch (e.kind) {
        case OutputEvent::reasoning:
          open(Block::thinking, R"({"type": "thinking", "thinking": "", "signature": ""})");
          delta("thinking_delta", "thinking", e.text);
          break;
        case OutputEvent::content:
          open(Block::text, R"({"type": "text", "text": ""})");
          delta("text_delta", "text", e.text);
          break;
        case OutputEvent::call_begin:
          close();
          open(Block::call, fmt::format("{{\"type\": \"tool_use\", \"id\": \"{}\", \"name\": {}, \"input\": {{}}}}",
                                        tool_id(), json_quoted(e.text)));
          break;
        case OutputEvent::call_arguments: delta("input_json_delta", "partial_json", e.text); break;
        case OutputEvent::call_end: close(); break;
      }
    }
    events_.flush();
  }

  void end_choice(int, const ChoiceEnd& end) override {
    close();
    events_.flush();
    end_ = end;
  }

  void finish(const Totals& totals) override {
    const Stop stop = stop_of(end_);
    send("message_delta", fmt::format("\"delta\": {{\"stop_reason\": {}, \"stop_sequence\": {}}}, \"usage\": {}",
                                      stop.reason, stop.sequence, usage(totals)));
    send("message_stop", "");
    events_.end();
  }

  void fail(const ApiError& error) override {
    events_.send("error", error_body(error, Dialect::anthropic));
    events_.end();
  }

 private:
  enum class Block { none, thinking, text, call };

  void send(std::string_view type, std::string_view more) {
    events_.send(type, fmt::format("{{\"type\": \"{}\"{}{}}}", type, more.empty() ? "" : ", ", more));
  }
  void open(Block kind, std::string_view block) {
    if (open_ == kind) return;
    close();
    open_ = kind;
    send("content_block_start", fmt::format("\"index\": {}, \"content_block\": {}", index_, block));
  }
  void close() {
    if (open_ == Block::none) return;
    if (open_ == Block::thinking) delta("signature_delta", "signature", "");
    open_ = Block::none;
    send("content_block_stop", fmt::format("\"index\": {}", index_++));
  }
  void delta(std::string_view type, std::string_view field, std::string_view text) {
    send("content_block_delta", fmt::format("\"index\": {}, \"delta\": {{\"type\": \"{}\", \"{}\": {}}}", index_, type,
                                            field, json_quoted(text)));
  }

  EventStream events_;
  const std::string model_;
  Totals so_far_;
  ChoiceEnd end_;
  Block open_ = Block::none;
  int index_ = 0;
};

void render_messages(const Service& service, const Fields& body, Request& request, TextOptions& text) {
  service.check_model(body.string("model").value_or(""));
  render(service, read_conversation(body), request, text);
}

}  // namespace

void anthropic_messages(Service& service, Call& call) {
  const Fields body(call.body);
  Request request;
  TextOptions text;
  // The fields that both protocols have in common mean the same; this one's own stop field is read on top.
  read_sampling(body, service, request, text);
  if (request.n != 1) body.refuse("n", "1");
  text.stops = read_stops(body, "stop_sequences");
  refuse_unsupported(body, {"mcp_servers", "container"});
  const bool stream = body.boolean("stream").value_or(false);
  const std::optional<int64_t> max_tokens = body.integer("max_tokens", 1, int64_t{1} << 40);
  if (!max_tokens) body.refuse("max_tokens", "an integer of at least 1");
  render_messages(service, body, request, text);
  fit_context(service, request, max_tokens, "max_tokens");

  std::unique_ptr<AnswerSink> sink;
  const std::string& model = service.options().names.front();
  if (stream)
    sink = std::make_unique<Streamed>(call, model, static_cast<int64_t>(request.prompt.size()));
  else
    sink = std::make_unique<Whole>(call, model);
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  service.generate(call, std::move(requests), std::move(text), std::move(sink));
}

void anthropic_count_tokens(Service& service, Call& call) {
  const Fields body(call.body);
  Request request;
  TextOptions text;
  render_messages(service, body, request, text);
  respond(call, Json::Object{{"input_tokens", request.prompt.size()}});
}

}  // namespace hadal::serve
