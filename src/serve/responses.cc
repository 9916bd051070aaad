// POST /v1/responses, GET and DELETE /v1/responses/ID
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

void read_item(const Json& json, const std::string& path, std::vector<ChatMessage>& out) {
  const Fields item(json, path);
  const std::string type = item.string("type").value_or("message");
  // Calls and reasoning belong to the assistant's turn that they stand in.
  const auto assistant = [&]() -> ChatMessage& {
    if (out.empty() || out.back().role != Role::assistant) out.emplace_back().role = Role::assistant;
    return out.back();
  };
  if (type == "message") {
    const std::string role = item.required_string("role");
    const Json* content = item.find("content");
    if (content == nullptr) item.refuse("content", "a string or a list of parts");
    std::string text = read_content(*content, item.path("content"));
    if (role == "assistant") {
      ChatMessage& m = assistant();
      if (!m.content.empty() || !m.tool_calls.empty()) out.emplace_back().role = Role::assistant;
      out.back().content = std::move(text);
    } else if (role == "user" || role == "system" || role == "developer") {
      ChatMessage& m = out.emplace_back();
      m.role = role == "user" ? Role::user : Role::system;
      m.content = std::move(text);
    } else {
      item.refuse("role", "user, assistant, system or developer");
    }
  } else if (type == "function_call") {
    assistant().tool_calls.push_back(
        {item.required_string("call_id"), item.required_string("name"), item.string("arguments").value_or("{}")});
  } else if (type == "function_call_output") {
    ChatMessage& m = out.emplace_back();
    m.role = Role::tool;
    m.tool_call_id = item.required_string("call_id");
    if (const Json* output = item.find("output")) m.content = read_content(*output, item.path("output"));
  } else if (type == "reasoning") {
    std::string text;
    for (const char* name : {"content", "summary"})
      if (const Json::Array* parts = item.array(name); parts != nullptr && text.empty())
        for (size_t i = 0; i < parts->size(); ++i)
          text += Fields((*parts)[i], fmt::format("{}[{}]", item.path(name), i)).string("text").value_or("");
    out.emplace_back().role = Role::assistant;
    out.back().reasoning = std::move(text);
  } else {
    item.refuse("type", "message, function_call, function_call_output or reasoning");
  }
}

void read_tools(const Fields& body, Conversation& c) {
  if (const Json::Array* tools = body.array("tools"))
    for (size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], fmt::format("tools[{}]", i));
      if (const std::string type = tool.required_string("type"); type != "function")
        throw ApiError(400,
                       fmt::format("{} is {}; this server runs no tools of its own, expected function",
                                   tool.path("type"), json_quoted(type)),
                       tool.path("type"), "unsupported_parameter");
      add_tool(c, tool.json(), tool.path());
    }
  if (const Json* choice = body.find("tool_choice")) {
    constexpr const char* kExpected = R"(none, auto, required or {"type": "function", "name": ...})";
    if (const std::string* mode = choice->as_string()) {
      choose_tools(c, body, *mode, kExpected);
    } else {
      const std::optional<Fields> object = choice->as_object() != nullptr ? body.object("tool_choice") : std::nullopt;
      if (!object || object->string("type").value_or("") != "function") body.refuse("tool_choice", kExpected);
      choose_tool(c, *object);
    }
  }
  c.one_call = !body.boolean("parallel_tool_calls").value_or(true);
}

AnswerFormat read_format(const Fields& body) {
  AnswerFormat format;
  const std::optional<Fields> text = body.object("text");
  const std::optional<Fields> object = text ? text->object("format") : std::nullopt;
  if (!object) return format;
  const std::string type = object->required_string("type");
  if (type == "json_object") {
    format.kind = AnswerFormat::json_object;
  } else if (type == "json_schema") {
    const std::optional<Fields> schema = object->object("schema");
    if (!schema) object->refuse("schema", "a JSON schema");
    format = {AnswerFormat::json_schema, schema->json()};
  } else if (type != "text") {
    object->refuse("type", "text, json_object or json_schema");
  }
  return format;
}

// ---- the answer ----------------------------------------------------------------------------------------------------

// One answer as it grows: the items that are complete, and what the answer says about itself.
class ResponseObject {
 public:
  ResponseObject(const Service& service, const Json& request) : id_(new_id("resp_")), created_(unix_time()) {
    const auto echoed = [&](const char* name, const char* otherwise) {
      const Json* value = request.find(name);
      about_ += fmt::format(", \"{}\": {}", name, value != nullptr ? value->dump() : otherwise);
    };
    about_ = ", \"model\": " + json_quoted(service.options().names.front());
    static constexpr std::pair<const char*, const char*> kEchoed[] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"previous_response_id", "null"},
        {"reasoning", R"({"effort": null, "summary": null})"},
        {"text", R"({"format": {"type": "text"}})"},
        {"tool_choice", "\"auto\""},
        {"tools", "[]"},
        {"top_p", "null"},
        {"temperature", "null"},
        {"truncation", "\"disabled\""},
        {"store", "true"}};
    for (const auto& [name, otherwise] : kEchoed) echoed(name, otherwise);
    about_ += ", \"background\": false, \"service_tier\": \"default\"";
  }
  const std::string& id() const { return id_; }
  void add_item(const std::string& item) { items_ += (items_.empty() ? "" : ", ") + item; }

  std::string text(std::string_view status, std::string_view usage = "null", std::string_view error = "null") const {
    const std::string_view details = status == "incomplete" ? R"({"reason": "max_output_tokens"})" : "null";
    return fmt::format(
        "{{\"id\": \"{}\", \"object\": \"response\", \"created_at\": {}, \"status\": \"{}\", \"error\": {}, "
        "\"incomplete_details\": {}, "
        "\"output\": [{}], \"usage\": {}{}}}",
        id_, created_, status, error, details, items_, usage, about_);
  }

 private:
  const std::string id_;
  const int64_t created_;
  std::string about_, items_;
};

std::string usage(const Totals& t) {
  return fmt::format(
      "{{\"input_tokens\": {}, \"input_tokens_details\": {{\"cached_tokens\": {}}}, \"output_tokens\": {}, "
      "\"output_tokens_details\": {{\"reasoning_tokens\": {}}}, \"total_tokens\": {}}}",
      t.prompt_tokens, t.cached_tokens, t.tokens, t.reasoning_tokens, t.prompt_tokens + t.tokens);
}

// The item that is being written. Its JSON is asked for twice in a stream: when it is opened and when it is done.
struct Item {
  enum Kind { none, reasoning, message, call } kind = none;
  std::string id, call_id, name, text;

  // The parts of reasoning and message, empty when nothing is said yet.
  std::string part() const {
    return kind == reasoning
               ? fmt::format("{{\"type\": \"reasoning_text\", \"text\": {}}}", json_quoted(text))
               : fmt::format("{{\"type\": \"output_text\", \"text\": {}, \"annotations\": [], \"logprobs\": []}}",
                             json_quoted(text));
  }
  std::string json(std::string_view status) const {
    const std::string parts = status == "in_progress" ? "" : part();
    switch (kind) {
      case reasoning:
        return fmt::format(
            "{{\"type\": \"reasoning\", \"id\": \"{}\", \"summary\": [], \"content\": [{}], \"status\": \"{}\"}}", id,
            parts, status);
      case message:
        return fmt::format(
            "{{\"type\": \"message\", \"id\": \"{}\", \"role\": \"assistant\", \"status\": \"{}\", \"content\": [{}]}}",
            id, status, parts);
      default:
        return fmt::format(
            "{{\"type\": \"function_call\", \"id\": \"{}\", \"call_id\": \"{}\", \"name\": {}, \"arguments\": {}, "
            "\"status\": \"{}\"}}",
            id, call_id, json_quoted(name), json_quoted(text), status);
    }
  }
};

// Both ways of answering write the same items; `say` hears of every step, for the stream.
class ResponseSink final : public AnswerSink {
 public:
  ResponseSink(Service& service, const Call& call, bool stream, bool store, std::vector<ChatMessage> conversation)
      : service_(service),
        exchange_(call.exchange),
        stream_(stream),
        store_(store),
        conversation_(std::move(conversation)),
        events_(call.exchange),
        response_(service, call.body) {}

  void begin() override {
    if (!stream_) return;
    events_.begin();
    say("response.created", "\"response\": " + response_.text("in_progress"));
    say("response.in_progress", "\"response\": " + response_.text("in_progress"));
    events_.flush();
  }

  void add(int, std::span<const OutputEvent> events, std::span<const GeneratedToken>) override {
    for (const OutputEvent& e : events) {
      switch (e.kind) {
        case OutputEvent::reasoning: grow(Item::reasoning, e.text); break;
        case OutputEvent::content: grow(Item::message, e.text); break;
        case OutputEvent::call_begin:
          close("completed");
          item_.name = e.text;
          open(Item::call);
          break;
        case OutputEvent::call_arguments: grow(Item::call, e.text); break;
        case OutputEvent::call_end: close(e.complete ? "completed" : "incomplete"); break;
      }
    }
    if (stream_) events_.flush();
  }

  void end_choice(int, const ChoiceEnd& end) override {
    complete_ = end.reason != FinishReason::length;
    close(complete_ ? "completed" : "incomplete");
  }

  void finish(const Totals& totals) override {
    const std::string_view status = complete_ ? "completed" : "incomplete";
    std::string body = response_.text(status, usage(totals));
    if (store_) {
      conversation_.push_back(answer_);
      service_.responses().put(response_.id(), {std::move(conversation_), body});
    }
    if (stream_) {
      say(complete_ ? "response.completed" : "response.incomplete", "\"response\": " + body);
      return events_.end();
    }
    HttpResponse r;
    r.body = std::move(body);
    exchange_->respond(std::move(r));
  }

  void fail(const ApiError& error) override {
    if (!stream_) return exchange_->respond(error_response(error, Dialect::openai));
    const std::string details =
        fmt::format("{{\"code\": \"server_error\", \"message\": {}}}", json_quoted(error.message));
    say("response.failed", "\"response\": " + response_.text("failed", "null", details));
    events_.end();
  }

 private:
  void say(std::string_view type, const std::string& more) {
    if (stream_)
      events_.send(type, fmt::format("{{\"type\": \"{}\", \"sequence_number\": {}, {}}}", type, sequence_++, more));
  }
  std::string place() const { return fmt::format("\"item_id\": \"{}\", \"output_index\": {}", item_.id, index_); }
  std::string_view prefix() const {
    return item_.kind == Item::reasoning ? "response.reasoning_text"
           : item_.kind == Item::message ? "response.output_text"
                                         : "response.function_call_arguments";
  }

  void open(Item::Kind kind) {
    item_.kind = kind;
    item_.id = new_id(kind == Item::reasoning ? "rs_" : kind == Item::message ? "msg_" : "fc_");
    if (kind == Item::call) item_.call_id = new_id("call_");
    say("response.output_item.added",
        fmt::format("\"output_index\": {}, \"item\": {}", index_, item_.json("in_progress")));
    if (kind != Item::call)
      say("response.content_part.added", fmt::format("{}, \"content_index\": 0, \"part\": {}", place(), item_.part()));
  }

  void grow(Item::Kind kind, const std::string& text) {
    if (item_.kind != kind) {
      close("completed");
      open(kind);
    }
    item_.text += text;
    const std::string_view content = kind == Item::call ? "" : ", \"content_index\": 0";
    const std::string_view logprobs = kind == Item::message ? ", \"logprobs\": []" : "";
    say(fmt::format("{}.delta", prefix()),
        fmt::format("{}{}, \"delta\": {}{}", place(), content, json_quoted(text), logprobs));
  }

  void close(std::string_view status) {
    if (item_.kind == Item::none) return;
    switch (item_.kind) {
      case Item::call:
        say(fmt::format("{}.done", prefix()), fmt::format("{}, \"name\": {}, \"arguments\": {}", place(),
                                                          json_quoted(item_.name), json_quoted(item_.text)));
        answer_.tool_calls.push_back({item_.call_id, item_.name, item_.text});
        break;
      case Item::message:
        say(fmt::format("{}.done", prefix()),
            fmt::format("{}, \"content_index\": 0, \"text\": {}, \"logprobs\": []", place(), json_quoted(item_.text)));
        answer_.content += item_.text;
        break;
      default:
        say(fmt::format("{}.done", prefix()),
            fmt::format("{}, \"content_index\": 0, \"text\": {}", place(), json_quoted(item_.text)));
        answer_.reasoning += item_.text;
    }
    if (item_.kind != Item::call)
      say("response.content_part.done", fmt::format("{}, \"content_index\": 0, \"part\": {}", place(), item_.part()));
    const std::string json = item_.json(status);
    say("response.output_item.done", fmt::format("\"output_index\": {}, \"item\": {}", index_, json));
    response_.add_item(json);
    item_ = {};
    ++index_;
  }

  Service& service_;
  const std::shared_ptr<Exchange> exchange_;
  const bool stream_, store_;
  std::vector<ChatMessage> conversation_;
  EventStream events_;
  ResponseObject response_;
  Item item_;
  ChatMessage answer_ = [] {
    ChatMessage m;
    m.role = Role::assistant;
    return m;
  }();
  int index_ = 0, sequence_ = 0;
  bool complete_ = true;
};

}  // namespace

void create_response(Service& service, Call& call) {
  const Fields body(call.body);
  service.check_model(body.string("model").value_or(""));
  Request request;
  TextOptions text;
  read_sampling(body, service, request, text);
  if (request.n != 1) body.refuse("n", "1");
  refuse_unsupported(body, {"background", "conversation", "prompt", "max_tool_calls", "top_logprobs"});
  // Codex asks for encrypted reasoning; the reasoning is there in the open.
  if (const Json::Array* include = body.array("include"))
    for (size_t i = 0; i < include->size(); ++i)
      if (const std::string* what = (*include)[i].as_string();
          what == nullptr || *what != "reasoning.encrypted_content")
        refuse_value(fmt::format("include[{}]", i), &(*include)[i], "reasoning.encrypted_content");
  const bool stream = body.boolean("stream").value_or(false), store = body.boolean("store").value_or(true);
  if (const std::string t = body.string("truncation").value_or("disabled"); t != "disabled" && t != "auto")
    body.refuse("truncation", "disabled or auto");

  Conversation c;
  if (const std::optional<std::string> instructions = body.string("instructions")) {
    c.messages.emplace_back().role = Role::system;
    c.messages.back().content = *instructions;
  }
  const size_t instructions = c.messages.size();
  if (const std::optional<std::string> previous = body.string("previous_response_id")) {
    std::optional<StoredResponse> stored = service.responses().get(*previous);
    if (!stored)
      throw ApiError(
          404,
          fmt::format("there is no response {}; it was not stored, or made room for later ones (the last {} are kept)",
                      json_quoted(*previous), service.options().stored_responses),
          "previous_response_id", "previous_response_not_found");
    c.messages.insert(c.messages.end(), stored->messages.begin(), stored->messages.end());
  }
  const Json* input = body.find("input");
  if (input == nullptr) body.refuse("input", "a string or a list of items");
  if (input->as_string() != nullptr) {
    c.messages.emplace_back().content = *input->as_string();
  } else {
    const Json::Array& items = body.required_array("input");
    for (size_t i = 0; i < items.size(); ++i) read_item(items[i], fmt::format("input[{}]", i), c.messages);
  }
  read_tools(body, c);
  c.format = read_format(body);
  if (const std::optional<Fields> reasoning = body.object("reasoning")) read_effort(*reasoning, "effort", c.thinking);
  render(service, c, request, text);
  fit_context(service, request, body.integer("max_output_tokens", 1, int64_t{1} << 40), "max_output_tokens");

  std::vector<ChatMessage> conversation(c.messages.begin() + static_cast<std::ptrdiff_t>(instructions),
                                        c.messages.end());
  auto sink = std::make_unique<ResponseSink>(service, call, stream, store, std::move(conversation));
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  service.generate(call, std::move(requests), std::move(text), std::move(sink));
}

void stored_response(Service& service, Call& call, const std::string& id) {
  if (call.http.method == "DELETE") {
    if (!service.responses().erase(id)) throw ApiError(404, fmt::format("there is no response {}", json_quoted(id)));
    return respond(call, Json::Object{{"id", id}, {"object", "response"}, {"deleted", true}});
  }
  const std::optional<StoredResponse> stored = service.responses().get(id);
  if (!stored) throw ApiError(404, fmt::format("there is no response {}", json_quoted(id)));
  HttpResponse r;
  r.body = stored->body;
  call.exchange->respond(std::move(r));
}

}  // namespace hadal::serve
