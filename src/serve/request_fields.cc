#include "serve/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>

#include "text/prompt_v41.h"

namespace hadal::serve {

using text::Json;

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();

std::map<int32_t, double> read_logit_bias(const Fields& body) {
  std::map<int32_t, double> bias;
  const std::optional<Fields> object = body.object("logit_bias");
  if (!object) return bias;
  for (const auto& [name, value] : *object->json().as_object()) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (error != std::errc() || end != name.data() + name.size() || token < 0)
      throw ApiError(400, fmt::format("logit_bias has the key {}, expected a token id", json_quoted(name)),
                     "logit_bias", "invalid_value");
    bias[token] = object->number(name, -100, 100).value_or(0);
  }
  return bias;
}

std::vector<int32_t> read_token_ids(const Fields& body, std::string_view name, int vocab) {
  std::vector<int32_t> ids;
  const Json::Array* list = body.array(name);
  if (list == nullptr) return ids;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::optional<long long> id = (*list)[i].as_integer();
    if (!id || *id < 0 || *id >= vocab)
      refuse_value(fmt::format("{}[{}]", body.path(name), i), &(*list)[i],
                   fmt::format("a token id from 0 to {}", vocab - 1));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

// false, 0, "" and empty lists and objects ask for nothing.
bool asks_for_nothing(const Json& value) {
  if (const bool* b = value.as_bool()) return !*b;
  if (const std::string* s = value.as_string()) return s->empty();
  if (const Json::Array* a = value.as_array()) return a->empty();
  if (const Json::Object* o = value.as_object()) return o->empty();
  if (value.as_number() != nullptr) return value.as_integer() == 0;
  return value.is_null();
}

}  // namespace

std::vector<std::string> read_stops(const Fields& body, std::string_view name) {
  const Json* value = body.find(name);
  if (value == nullptr) return {};
  constexpr const char* kExpected = "a string or a list of at most 64 strings, none empty";
  std::vector<std::string> stops;
  if (const std::string* one = value->as_string()) {
    if (!one->empty()) stops.push_back(*one);
    return stops;
  }
  const Json::Array* list = value->as_array();
  if (list == nullptr || list->size() > 64) body.refuse(name, kExpected);
  for (const Json& item : *list) {
    if (item.as_string() == nullptr || item.as_string()->empty()) body.refuse(name, kExpected);
    stops.push_back(*item.as_string());
  }
  return stops;
}

void refuse_unsupported(const Fields& body, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const Json* value = body.find(name);
    if (value != nullptr && !asks_for_nothing(*value))
      throw ApiError(400, fmt::format("{} is not supported by this server", body.path(name)), body.path(name),
                     "unsupported_parameter");
  }
}

void read_sampling(const Fields& body, const Service& service, Request& request, TextOptions& text) {
  const int vocab = service.engine()->vocab_size();
  SamplingOptions& s = request.sampling;
  s.temperature = body.number("temperature", 0, 100).value_or(service.options().temperature);
  s.top_p = body.number("top_p", 0, 1).value_or(service.options().top_p);
  if (s.top_p == 0) body.refuse("top_p", "a number above 0 and up to 1");
  s.top_k = static_cast<int>(std::max<int64_t>(0, body.integer("top_k", -1, 1 << 30).value_or(0)));
  s.min_p = body.number("min_p", 0, 1).value_or(0);
  s.presence_penalty = body.number("presence_penalty", -2, 2).value_or(0);
  s.frequency_penalty = body.number("frequency_penalty", -2, 2).value_or(0);
  s.repetition_penalty = body.number("repetition_penalty", 0, 10).value_or(1);
  if (s.repetition_penalty == 0) body.refuse("repetition_penalty", "a number above 0 and up to 10");
  s.logit_bias = read_logit_bias(body);
  const std::optional<int64_t> seed = body.integer("seed", std::numeric_limits<int64_t>::min(), kAnyInteger);
  s.seed = seed ? static_cast<uint64_t>(*seed) : (uint64_t{std::random_device{}()} << 32) | std::random_device{}();

  request.n = static_cast<int>(body.integer("n", 1, 128).value_or(1));
  request.min_tokens = body.integer("min_tokens", 0, kMostTokens).value_or(0);
  request.ignore_eos = body.boolean("ignore_eos").value_or(false);
  request.stop_tokens = read_token_ids(body, "stop_token_ids", vocab);
  // As vLLM has it, a lower number runs first.
  request.priority = -static_cast<int>(body.integer("priority", -1'000'000, 1'000'000).value_or(0));

  text.stops = read_stops(body, "stop");
  text.keep_stop = body.boolean("include_stop_str_in_output").value_or(false);
  text.skip_special = body.boolean("skip_special_tokens").value_or(true);
  if (const std::optional<int64_t> best = body.integer("best_of", 1, 128); best && *best != request.n)
    throw ApiError(400, fmt::format("best_of is {}, expected n, which is {}: answers are not ranked", *best, request.n),
                   "best_of", "unsupported_parameter");
  refuse_unsupported(body, {"prompt_logprobs", "use_beam_search", "length_penalty", "truncate_prompt_tokens",
                            "allowed_token_ids", "bad_words", "logits_processors", "guided_json", "guided_regex",
                            "guided_choice", "guided_grammar", "guided_whitespace_pattern", "structured_outputs",
                            "regex", "ebnf", "structural_tag", "return_tokens_as_token_ids", "kv_transfer_params"});
}

void fit_context(const Service& service, Request& request, std::optional<int64_t> max_tokens, std::string_view field) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t most = service.max_model_len();
  if (prompt >= most)
    throw ApiError(400, fmt::format("the context is {} tokens, and the prompt alone has {}; shorten it", most, prompt),
                   "messages", "context_length_exceeded");
  if (max_tokens && prompt + *max_tokens > most)
    throw ApiError(400,
                   fmt::format("the context is {} tokens, but {} were asked for: {} of the prompt and {} of the answer "
                               "({}); shorten one of them",
                               most, prompt + *max_tokens, prompt, *max_tokens, field),
                   std::string(field), "context_length_exceeded");
  request.max_tokens = max_tokens.value_or(std::min(service.options().default_max_tokens, most - prompt));
  if (!max_tokens) {
    // A client that did not say gets what the cache has room for, not a refusal.
    const int64_t room = service.engine()->stats().cache_tokens - prompt - 64;
    if (room > 0) request.max_tokens = std::min(request.max_tokens, room);
    request.min_tokens = std::min(request.min_tokens, request.max_tokens);
  }
}

void read_effort(const Fields& object, std::string_view name, Thinking& thinking) {
  const Json* value = object.find(name);
  if (value == nullptr) return;
  constexpr const char* kExpected = "none, minimal, low, medium, high, xhigh, max or an integer from 1 to 100";
  if (value->as_string() == nullptr) {
    if (value->as_number() == nullptr) object.refuse(name, kExpected);
    thinking = {true, static_cast<int>(*object.integer(name, 1, 100)), thinking.drop};
    return;
  }
  if (*value->as_string() == "none") {
    thinking.on = false;
    return;
  }
  const std::optional<int> effort = text::effort_of_name(*value->as_string());
  if (!effort) object.refuse(name, kExpected);
  thinking = {true, *effort, thinking.drop};
}

void read_thinking_type(const Fields& body, Thinking& thinking) {
  const std::optional<Fields> object = body.object("thinking");
  if (!object) return;
  const std::string type = object->required_string("type");
  if (type == "disabled") {
    thinking.on = false;
  } else if (type == "enabled" || type == "adaptive" || type == "auto") {
    thinking.on = true;
  } else {
    object->refuse("type", "enabled, disabled or adaptive");
  }
}

std::string read_content(const Json& content, const std::string& path) {
  if (content.is_null()) return {};
  if (const std::string* text = content.as_string()) return *text;
  const Json::Array* parts = content.as_array();
  if (parts == nullptr) refuse_value(path, &content, "a string or a list of parts");
  std::string joined;
  for (size_t i = 0; i < parts->size(); ++i) {
    const std::string where = fmt::format("{}[{}]", path, i);
    std::string text;
    if (const std::string* plain = (*parts)[i].as_string()) {
      text = *plain;
    } else {
      const Fields part((*parts)[i], where);
      const std::string type = part.required_string("type");
      if (type == "text" || type == "input_text" || type == "output_text") {
        text = part.required_string("text");
      } else if (type == "refusal") {
        text = part.required_string("refusal");
      } else if (type.find("image") != std::string::npos) {
        throw ApiError(400, fmt::format("{} is an image; this server reads text only", where), where,
                       "unsupported_content");
      } else {
        throw ApiError(
            400, fmt::format("{}.type is {}, expected text; this server reads text only", where, json_quoted(type)),
            where, "unsupported_content");
      }
    }
    if (i > 0) joined += "\n\n";
    joined += text;
  }
  return joined;
}

void choose_tools(Conversation& c, const Fields& body, const std::string& mode, const char* expected) {
  if (mode == "none")
    c.tool_choice.mode = ToolChoice::none;
  else if (mode == "required")
    c.tool_choice.mode = ToolChoice::required;
  else if (mode != "auto")
    body.refuse("tool_choice", expected);
}

void choose_tool(Conversation& c, const Fields& at) {
  c.tool_choice = {ToolChoice::named, at.required_string("name")};
  bool known = false;
  for (const Json& tool : c.tools) known |= *tool.find("name")->as_string() == c.tool_choice.name;
  if (!known) at.refuse("name", "the name of one of the tools");
}

void add_tool(Conversation& c, const Json& function, const std::string& path) {
  const Fields fields(function, path);
  const std::string name = fields.required_string("name");
  if (name.empty() || name.size() > 256) fields.refuse("name", "1 to 256 bytes");
  if (name.find_first_of("\"<>\n\r") != std::string::npos)
    fields.refuse("name", "a name without quotes, angle brackets and line breaks");
  fields.string("description");
  fields.object("parameters");
  for (const Json& tool : c.tools)
    if (*tool.find("name")->as_string() == name)
      throw ApiError(400, fmt::format("{} is the second tool that is called {}", path, json_quoted(name)), path,
                     "invalid_value");
  c.tools.push_back(text::canonical_tool(function));
  c.strict.push_back(fields.boolean("strict").value_or(false));
}

namespace {

// What the answer must be, nullptr when it may be anything. `reasons`: the prompt ends inside the reasoning.
std::shared_ptr<const Constraint> constraint_of(const Service& service, const Conversation& c, bool reasons) {
  const bool must_call = c.tool_choice.mode == ToolChoice::required || c.tool_choice.mode == ToolChoice::named;
  const bool may_call = !c.tools.empty() && c.tool_choice.mode != ToolChoice::none;
  const bool strict = may_call && std::find(c.strict.begin(), c.strict.end(), true) != c.strict.end();
  if (c.format.kind == AnswerFormat::text && !must_call && !strict) return nullptr;

  grammar::Grammars& grammars = service.grammars();
  std::shared_ptr<const Constraint> constraint;
  if (!may_call && c.format.kind == AnswerFormat::json_object) {
    constraint = grammars.json_object();
  } else if (!may_call) {
    constraint = grammars.json_schema(c.format.schema);
  } else {
    // An answer of the format, or calls.
    static const Json any_object(Json::Object{{"type", "object"}});
    const Json* const answer = c.format.kind == AnswerFormat::json_schema   ? &c.format.schema
                               : c.format.kind == AnswerFormat::json_object ? &any_object
                                                                            : nullptr;
    grammar::ToolChoice choice;
    choice.kind = c.tool_choice.mode == ToolChoice::named      ? grammar::ToolChoice::named
                  : c.tool_choice.mode == ToolChoice::required ? grammar::ToolChoice::required
                                                               : grammar::ToolChoice::automatic;
    choice.name = c.tool_choice.name;
    choice.parallel = !c.one_call;
    std::vector<grammar::Tool> tools;
    for (size_t i = 0; i < c.tools.size(); ++i)
      tools.push_back({*c.tools[i].find("name")->as_string(), *c.tools[i].find("parameters"), true});
    try {
      constraint = grammars.tool_calls(tools, choice, answer);
    } catch (const Error& error) {
      // A schema that cannot be enforced only matters for tools that are marked strict.
      if (error.kind() != ErrorKind::invalid_argument) throw;
      for (size_t i = 0; i < tools.size(); ++i) tools[i].enforce = c.strict[i];
      constraint = grammars.tool_calls(tools, choice, answer);
    }
  }
  return reasons ? grammars.after_reasoning(constraint) : constraint;
}

}  // namespace

void render(const Service& service, const Conversation& c, Request& request, TextOptions& text) {
  if (c.messages.empty())
    throw ApiError(400, "there are no messages, expected at least one", "messages", "invalid_value");
  text::PromptOptions options;
  options.thinking = c.thinking.on;
  options.effort = c.thinking.effort;
  options.drop_thinking = c.thinking.drop;
  options.generate = c.generate;
  // A model that must not call does not hear of tools.
  if (c.tool_choice.mode != ToolChoice::none) options.tools = c.tools;
  if (c.format.kind == AnswerFormat::json_schema) options.response_schema = c.format.schema;
  const bool must_call = c.tool_choice.mode == ToolChoice::required || c.tool_choice.mode == ToolChoice::named;
  if (must_call && c.tools.empty())
    throw ApiError(400, "tool_choice asks for a call, but there are no tools", "tool_choice", "invalid_value");
  const text::Prompt prompt = text::encode_prompt_v41(c.messages, options);
  request.prompt = service.tokenizer().encode(prompt);
  text.chat = true;
  text.start = text::OutputParser::start_of(prompt);
  text.parser.tools = options.tools;
  text.parser.parse_calls = !options.tools.empty();
  text.one_call = c.one_call;
  request.constraint = constraint_of(service, c, text.start.reasoning);
  if (request.constraint && (request.ignore_eos || request.min_tokens > 0))
    throw ApiError(400,
                   "ignore_eos and min_tokens cannot be had together with a response format, a required call or a "
                   "strict tool: the grammar says where the answer ends",
                   request.ignore_eos ? "ignore_eos" : "min_tokens", "invalid_value");
}

}  // namespace hadal::serve
