#include "conversation.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "engine/sampler.h"
#include "model_options.h"

namespace hadal {
namespace {

using text::ChatMessage;
using text::Json;
using text::Role;

template <typename T>
T number(const std::string& value) {
  T result{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size())
    fail(ErrorKind::invalid_argument, "'{}' is not a {}", value, std::is_integral_v<T> ? "whole number" : "number");
  return result;
}

int in_range(const std::string& value, int low, int high) {
  const int n = number<int>(value);
  if (n < low || n > high) fail(ErrorKind::invalid_argument, "{} is not from {} to {}", n, low, high);
  return n;
}

bool on_or_off(const std::string& value) {
  if (value == "on" || value == "off") return value == "on";
  fail(ErrorKind::invalid_argument, "'{}' is neither on nor off", value);
}

using S = ChatSettings;
constexpr ChatSetting kSettings[] = {
    {"temperature", "0 = always the most likely token",
     [](const S& s) { return text::python_float_repr(s.sampling.temperature); },
     [](S& s, const std::string& v) { s.sampling.temperature = number<double>(v); }},
    {"top-p", "keep the most likely tokens that hold this probability",
     [](const S& s) { return text::python_float_repr(s.sampling.top_p); },
     [](S& s, const std::string& v) { s.sampling.top_p = number<double>(v); }},
    {"top-k", "keep this many of the most likely tokens; 0 = all",
     [](const S& s) { return std::to_string(s.sampling.top_k); },
     [](S& s, const std::string& v) { s.sampling.top_k = number<int>(v); }},
    {"min-p", "drop tokens below this share of the most likely one",
     [](const S& s) { return text::python_float_repr(s.sampling.min_p); },
     [](S& s, const std::string& v) { s.sampling.min_p = number<double>(v); }},
    {"seed", "the same seed gives the same answers", [](const S& s) { return std::to_string(s.sampling.seed); },
     [](S& s, const std::string& v) { s.sampling.seed = number<uint64_t>(v); }},
    {"max-tokens", "most tokens of an answer", [](const S& s) { return std::to_string(s.max_tokens); },
     [](S& s, const std::string& v) { s.max_tokens = in_range(v, 1, 1 << 24); }},
    {"think", "on or off: reason before the answer", [](const S& s) { return std::string(s.thinking ? "on" : "off"); },
     [](S& s, const std::string& v) { s.thinking = on_or_off(v); }},
    {"effort", "how much to reason, 1 to 100", [](const S& s) { return std::to_string(s.effort); },
     [](S& s, const std::string& v) { s.effort = in_range(v, 1, 100); }},
};

constexpr std::pair<Role, const char*> kRoles[] = {{Role::system, "system"},
                                                   {Role::user, "user"},
                                                   {Role::assistant, "assistant"},
                                                   {Role::tool, "tool"},
                                                   {Role::latest_reminder, "latest_reminder"}};

Json to_json(const ChatMessage& m) {
  Json::Object object;
  for (const auto& [role, name] : kRoles)
    if (role == m.role) object.emplace_back("role", name);
  object.emplace_back("content", m.content);
  if (!m.reasoning.empty()) object.emplace_back("reasoning_content", m.reasoning);
  if (!m.tool_calls.empty()) {
    Json::Array calls;
    for (const text::ToolCall& call : m.tool_calls)
      calls.emplace_back(Json::Object{{"id", call.id},
                                      {"type", "function"},
                                      {"function", Json::Object{{"name", call.name}, {"arguments", call.arguments}}}});
    object.emplace_back("tool_calls", std::move(calls));
  }
  if (m.role == Role::tool) object.emplace_back("tool_call_id", m.tool_call_id);
  return object;
}

// The member of an object as text; absent is empty unless it is required.
std::string text_of(const Json& object, const char* key, bool required = false) {
  const Json* value = object.find(key);
  if (value == nullptr || value->is_null()) {
    if (required) fail(ErrorKind::invalid_data, "\"{}\" is missing", key);
    return {};
  }
  if (const std::string* s = value->as_string()) return *s;
  fail(ErrorKind::invalid_data, "\"{}\" is {}, expected a string", key, value->dump().substr(0, 60));
}

const Json::Array& list_of(const Json& object, const char* key) {
  static const Json::Array none;
  const Json* value = object.find(key);
  if (value == nullptr || value->is_null()) return none;
  if (const Json::Array* list = value->as_array()) return *list;
  fail(ErrorKind::invalid_data, "\"{}\" is {}, expected a list", key, value->dump().substr(0, 60));
}

ChatMessage message_of(const Json& object) {
  ChatMessage m;
  const std::string role = text_of(object, "role", true);
  const auto known =
      std::find_if(std::begin(kRoles), std::end(kRoles), [&](const auto& r) { return role == r.second; });
  if (known == std::end(kRoles)) fail(ErrorKind::invalid_data, "\"role\" is \"{}\", which is no role", role);
  m.role = known->first;
  m.content = text_of(object, "content");
  m.reasoning = text_of(object, "reasoning_content");
  m.tool_call_id = text_of(object, "tool_call_id");
  for (const Json& call : list_of(object, "tool_calls")) {
    const Json* function = call.find("function");
    if (function == nullptr) fail(ErrorKind::invalid_data, "a tool call has no \"function\"");
    m.tool_calls.push_back(
        {text_of(call, "id", true), text_of(*function, "name", true), text_of(*function, "arguments", true)});
  }
  return m;
}

Json parse_file(const std::filesystem::path& file) { return Json::parse(read_text(file.string())); }

// Runs `read`, and puts the file's name in front of what it finds wrong.
template <typename F>
auto in_file(const std::filesystem::path& file, F read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::io) throw;
    throw Error(ErrorKind::invalid_data, file.string() + ": " + error.what());
  }
}

void write_over(const std::filesystem::path& file, const std::string& content) {
  std::string temporary = file.string() + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  const auto give_up = [&](const char* what) {
    const int why = errno;
    if (fd >= 0) ::close(fd);
    if (fd >= 0) ::unlink(temporary.c_str());
    fail(ErrorKind::io, "cannot {} {}: {}", what, file.string(), std::generic_category().message(why));
  };
  if (fd < 0) give_up("create a file beside");
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = ::write(fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) give_up("write");
    done += static_cast<size_t>(n);
  }
  if (::fsync(fd) != 0) give_up("write");
  if (::rename(temporary.c_str(), file.c_str()) != 0) give_up("replace");
  ::close(fd);
}

}  // namespace

std::span<const ChatSetting> chat_settings() { return kSettings; }

void change(ChatSettings& settings, const std::string& name, const std::string& value) {
  std::string names;
  for (const ChatSetting& setting : kSettings) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", setting.name);
    if (name != setting.name) continue;
    ChatSettings changed = settings;
    try {
      setting.set(changed, value);
    } catch (const Error& error) { throw Error(error.kind(), name + ": " + error.what()); }
    validate(changed.sampling);
    settings = changed;
    return;
  }
  fail(ErrorKind::invalid_argument, "there is no setting '{}', expected one of {}", name, names);
}

text::Prompt Conversation::prompt() const {
  std::vector<ChatMessage> all;
  if (!system.empty()) {
    all.emplace_back().role = Role::system;
    all.back().content = system;
  }
  all.insert(all.end(), messages.begin(), messages.end());
  text::PromptOptions options;
  options.thinking = settings.thinking;
  options.effort = settings.effort;
  options.tools = tools;
  return text::encode_prompt_v41(all, options);
}

bool Conversation::drop_answer() {
  while (!messages.empty() && messages.back().role != Role::user) messages.pop_back();
  return !messages.empty();
}

bool Conversation::drop_turn() {
  if (!drop_answer()) return false;
  messages.pop_back();
  return true;
}

std::vector<text::ToolCall> Conversation::open_calls() const {
  std::vector<std::string> answered;
  size_t i = messages.size();
  while (i > 0 && messages[i - 1].role == Role::tool) answered.push_back(messages[--i].tool_call_id);
  if (i == 0) return {};
  std::vector<text::ToolCall> open = messages[i - 1].tool_calls;
  std::erase_if(open, [&](const text::ToolCall& c) {
    return std::find(answered.begin(), answered.end(), c.id) != answered.end();
  });
  return open;
}

void Conversation::save(const std::filesystem::path& file) const {
  Json::Object options;
  for (const ChatSetting& setting : kSettings) options.emplace_back(setting.name, setting.get(settings));
  std::string out = "{\"format\": \"hadal-chat\", \"version\": 1,\n\"options\": " + Json(std::move(options)).dump() +
                    ",\n\"system\": ";
  out += Json(system).dump() + ",\n\"tools\": " + Json(tools).dump() + ",\n\"messages\": [";
  // A line for each message, for people and version control.
  for (size_t i = 0; i < messages.size(); ++i) out += (i == 0 ? "\n" : ",\n") + to_json(messages[i]).dump();
  write_over(file, out + "\n]}\n");
}

Conversation Conversation::load(const std::filesystem::path& file) {
  return in_file(file, [&] {
    const Json root = parse_file(file);
    if (text_of(root, "format") != "hadal-chat")
      fail(ErrorKind::invalid_data, "this is no conversation that hadal chat saved");
    const Json* version = root.find("version");
    if (version == nullptr || version->as_integer() != 1)
      fail(ErrorKind::invalid_data, "version {} is not known, expected 1",
           version == nullptr ? "(none)" : version->dump());
    Conversation c;
    c.system = text_of(root, "system");
    for (const Json& tool : list_of(root, "tools")) c.tools.push_back(text::canonical_tool(tool));
    for (const Json& message : list_of(root, "messages")) c.messages.push_back(message_of(message));
    if (const Json* options = root.find("options"); options != nullptr && options->as_object() != nullptr)
      for (const auto& [name, value] : *options->as_object())
        change(c.settings, name, value.as_string() != nullptr ? *value.as_string() : value.dump());
    return c;
  });
}

std::vector<Json> load_tools(const std::filesystem::path& file) {
  return in_file(file, [&] {
    const Json root = parse_file(file);
    if (root.as_array() == nullptr) fail(ErrorKind::invalid_data, "expected a list of function objects");
    std::vector<Json> tools;
    for (const Json& tool : *root.as_array()) {
      const Json* function = tool.find("function");
      tools.push_back(text::canonical_tool(function != nullptr && function->as_object() != nullptr ? *function : tool));
    }
    return tools;
  });
}

}  // namespace hadal
