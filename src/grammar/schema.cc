#include "grammar/schema.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "grammar/numbers.h"
#include "grammar/regex.h"
#include "grammar/schema_keywords.h"

namespace hadal::grammar {

using text::Json;

namespace {

// How many items or characters a schema may ask for; Machine::kMaxStates is the limit of the whole.
constexpr std::uint32_t kMostRepeats = 50'000;
constexpr int kMostNesting = 250;

std::uint32_t count(const Json& schema, const std::string& path, const char* keyword, std::uint32_t otherwise) {
  const Json* value = schema.find(keyword);
  if (!value) return otherwise;
  const auto number = value->as_integer();
  if (!number || *number < 0) refuse(path, keyword, "must be an integer of at least 0");
  if (*number > kMostRepeats)
    refuse(path, keyword, fmt::format("is {}; at most {} is supported", *number, kMostRepeats));
  return static_cast<std::uint32_t>(*number);
}

}  // namespace

SchemaRules::SchemaRules(Machine& machine, const Json& root, std::string root_path)
    : machine_(machine), characters_(machine), root_(root), root_path_(std::move(root_path)) {}

RuleId SchemaRules::rule(const Json& schema, const std::string& path, Form form) {
  const auto [it, fresh] = rules_.try_emplace({&schema, form}, Machine::kNoRule);
  if (!fresh) return it->second;
  if (++depth_ > kMostNesting)
    fail(ErrorKind::invalid_argument, "schema at {}: more than {} schemas inside each other", path, kMostNesting);
  check_unit_cycles(schema, path, 0);
  machine_.set_place(path);
  const RuleId id = it->second = machine_.rule();
  const StateId start = machine_.rule_at(id).start, final = machine_.rule_at(id).final;
  write(schema, path, form, start, final);
  --depth_;
  return id;
}

void SchemaRules::write(const Json& schema, const std::string& path, Form form, StateId from, StateId to) {
  machine_.set_place(path);
  if (const bool* all = schema.as_bool()) {
    if (!*all) return;  // no value at all
    return machine_.call(from, any(form), to);
  }
  check_keywords(schema, path);
  if (schema.find("$ref")) {
    check_no_others(schema, path, "$ref", {"$ref"});
    std::string target_path;
    const Json& there = target(schema, path, target_path);
    return machine_.call(from, rule(there, target_path, form), to);
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    const Json* branches = schema.find(keyword);
    if (!branches) continue;
    check_no_others(schema, path, keyword, {keyword});
    if (!branches->as_array() || branches->as_array()->empty()) refuse(path, keyword, "must be a list of schemas");
    if (std::string_view(keyword) == "allOf" && branches->as_array()->size() > 1)
      refuse(path, keyword, "with several schemas is not supported; write one schema that says the same");
    for (std::size_t i = 0; i < branches->as_array()->size(); ++i) {
      const std::string branch = fmt::format("{}/{}/{}", path, keyword, i);
      machine_.call(from, rule((*branches->as_array())[i], branch, form), to);
    }
    return;
  }
  const Json* values = schema.find("enum");
  const Json* constant = schema.find("const");
  const std::set<std::string> types = types_of(schema, path);
  if (values || constant) {
    const char* keyword = values ? "enum" : "const";
    check_no_others(schema, path, keyword, {keyword, "type"});
    if (values && (!values->as_array() || values->as_array()->empty()))
      refuse(path, "enum", "must be a list of values");
    const Json::Array all = values ? *values->as_array() : Json::Array{*constant};
    bool fits = false;
    std::vector<std::string> texts;
    for (const Json& value : all) {
      const std::string type = type_name(value);
      if (!types.count(type) && !(type == "integer" && types.count("number"))) continue;
      fits = true;
      if (value.as_string() && form != Form::no_string)
        texts.push_back(form == Form::unquoted ? *value.as_string()
                                               : '"' + spelled(*value.as_string(), Spelling::json) + '"');
      else
        write_literal(value, fmt::format("{}/{}", path, keyword), form, from, to);
    }
    if (!fits) refuse(path, keyword, "has no value of the schema's type");
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    return write_texts(texts, 0, from, to);
  }
  if (types.size() == kTypes.size() && !has_assertions(schema)) return machine_.call(from, any(form), to);
  for (const std::string& type : types) {
    if (type == "integer" && types.count("number")) continue;
    if (form != Form::json && (type == "string") != (form == Form::unquoted)) continue;
    write_type(type, schema, path, form, from, to);
  }
}

const Json& SchemaRules::target(const Json& schema, const std::string& path, std::string& target_path) const {
  const std::string* reference = schema.find("$ref")->as_string();
  if (!reference) refuse(path, "$ref", "must be a string");
  if (reference->empty() || (*reference)[0] != '#')
    refuse(path, "$ref",
           fmt::format("to \"{}\" is not supported; put the schema under \"$defs\" and write \"#/$defs/NAME\"",
                       *reference));
  const Json* at = &root_;
  const std::string pointer = percent_decoded(std::string_view(*reference).substr(1));
  std::string_view rest = pointer;
  if (!rest.empty() && rest[0] != '/')
    refuse(path, "$ref", fmt::format("to the anchor \"{}\" is not supported; write \"#/$defs/NAME\"", *reference));
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string name = pointer_step(rest.substr(0, end));
    rest.remove_prefix(end);
    const Json* next = at->find(name);
    if (const Json::Array* list = at->as_array()) {
      std::size_t index = 0;
      for (const char c : name)
        index = c >= '0' && c <= '9' && index < list->size() ? index * 10 + (c - '0') : list->size();
      if (!name.empty() && index < list->size()) next = &(*list)[index];
    }
    if (!next) refuse(path, "$ref", fmt::format("to \"{}\" leads nowhere: there is no \"{}\"", *reference, name));
    at = next;
  }
  target_path = root_path_ + reference->substr(1);
  return *at;
}

// A schema that is a branch of itself would be read without end.
void SchemaRules::check_unit_cycles(const Json& schema, const std::string& path, int depth) {
  if (!schema.as_object()) return;
  if (depth > kMostNesting)
    fail(ErrorKind::invalid_argument, "schema at {}: more than {} references in a row", path, kMostNesting);
  const auto [it, fresh] = unit_checked_.try_emplace(&schema, false);
  if (!fresh) {
    if (!it->second)
      fail(ErrorKind::invalid_argument,
           "schema at {}: it refers to itself without a value between; remove the circle of $ref", path);
    return;
  }
  if (schema.find("$ref")) {
    std::string target_path;
    const Json& there = target(schema, path, target_path);
    check_unit_cycles(there, target_path, depth + 1);
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"})
    if (const Json* branches = schema.find(keyword))
      if (branches->as_array())
        for (std::size_t i = 0; i < branches->as_array()->size(); ++i)
          check_unit_cycles((*branches->as_array())[i], fmt::format("{}/{}/{}", path, keyword, i), depth + 1);
  unit_checked_[&schema] = true;
}

SchemaRules::Members SchemaRules::members(const Json& schema, const std::string& path) const {
  Members result;
  const Json* properties = schema.find("properties");
  const Json* others = schema.find("additionalProperties");
  const Json* required = schema.find("required");
  if (properties && !properties->as_object()) refuse(path, "properties", "must be an object");
  if (others && !others->as_object() && !others->as_bool())
    refuse(path, "additionalProperties", "must be a boolean or a schema");
  if (required && !required->as_array()) refuse(path, "required", "must be a list of names");
  const bool closed = others && others->as_bool() && !*others->as_bool();
  result.open = others ? !closed : !properties;
  result.others = others && others->as_object() ? others : nullptr;
  result.others_path = path + "/additionalProperties";
  if (properties)
    for (const auto& [name, value] : *properties->as_object())
      result.listed.push_back({name, &value, fmt::format("{}/properties/{}", path, name)});
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < result.listed.size(); ++i) places.emplace((*properties->as_object())[i].first, i);
  std::set<std::string_view> beside;
  for (const Json& name : required ? *required->as_array() : Json::Array()) {
    if (!name.as_string()) refuse(path, "required", "must be a list of names");
    const auto it = places.find(*name.as_string());
    if (it != places.end()) {
      result.listed[it->second].required = true;
      continue;
    }
    if (closed)
      refuse(path, "required",
             fmt::format("names \"{}\", which \"properties\" lacks and \"additionalProperties\" forbids",
                         *name.as_string()));
    if (beside.insert(*name.as_string()).second)
      result.listed.push_back({*name.as_string(), result.others, result.others_path, true});
  }
  return result;
}

SchemaRules::Members SchemaRules::members_of_object(const Json& schema, const std::string& path) {
  check_unit_cycles(schema, path, 0);
  const Json* at = &schema;
  std::string at_path = path;
  for (;;) {
    check_keywords(*at, at_path);
    if (!at->find("$ref")) break;
    check_no_others(*at, at_path, "$ref", {"$ref"});
    std::string next_path;
    at = &target(*at, at_path, next_path);
    at_path = next_path;
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf", "enum", "const"})
    if (at->find(keyword))
      refuse(at_path, keyword, "is not supported for the arguments of a tool; list them in \"properties\"");
  if (at->find("type") && !types_of(*at, at_path).count("object"))
    refuse(at_path, "type", fmt::format("is {}; the arguments of a tool are an \"object\"", at->find("type")->dump()));
  return members(*at, at_path);
}

RuleId SchemaRules::layout() {
  if (layout_ != Machine::kNoRule) return layout_;
  constexpr int kIndent = 32;
  layout_ = machine_.rule();
  const StateId start = machine_.rule_at(layout_).start, final = machine_.rule_at(layout_).final;
  machine_.epsilon(start, final);
  machine_.edge(start, ' ', final);
  StateId at = machine_.state();
  machine_.edge(start, '\n', at);
  for (int i = 0; i < kIndent; ++i) {
    machine_.epsilon(at, final);
    const StateId next = machine_.state();
    machine_.edge(at, ' ', next);
    at = next;
  }
  machine_.epsilon(at, final);
  return layout_;
}

RuleId SchemaRules::free_string() {
  if (free_string_ != Machine::kNoRule) return free_string_;
  free_string_ = machine_.rule();
  const StateId start = machine_.rule_at(free_string_).start, final = machine_.rule_at(free_string_).final;
  const StateId open = machine_.state(), end = machine_.state();
  machine_.edge(start, '"', open);
  machine_.text(open, Text::json, characters_.free_character(Text::json), 0, Machine::kNoLimit, end);
  machine_.edge(end, '"', final);
  return free_string_;
}

RuleId SchemaRules::any(Form form) {
  RuleId& known = any_[static_cast<int>(form)];
  if (known != Machine::kNoRule) return known;
  const RuleId id = known = machine_.rule();
  const StateId start = machine_.rule_at(id).start, final = machine_.rule_at(id).final;
  static const Json nothing{Json::Object{}};
  for (const std::string& type : kTypes)
    if (type != "integer" && (form == Form::json || (form == Form::unquoted) == (type == "string")))
      write_type(type, nothing, root_path_, form, start, final);
  return id;
}

void SchemaRules::write_type(const std::string& type, const Json& schema, const std::string& path, Form form,
                             StateId from, StateId to) {
  if (type == "null") return machine_.literal(from, "null", to);
  if (type == "boolean") {
    machine_.literal(from, "true", to);
    return machine_.literal(from, "false", to);
  }
  if (type == "integer" || type == "number") return write_numeric(schema, path, type == "integer", from, to);
  if (type == "string") return write_string(schema, path, form, from, to);
  if (type == "array") return write_array(schema, path, from, to);
  write_object(members(schema, path), from, to);
}

void SchemaRules::write_texts(std::span<const std::string> sorted, std::size_t at, StateId from, StateId to) {
  if (sorted.empty()) return;
  const std::string &first = sorted.front(), &last = sorted.back();
  std::size_t end = at;
  while (end < first.size() && end < last.size() && first[end] == last[end]) ++end;
  from = machine_.literal(from, std::string_view(first).substr(at, end - at));
  if (end == first.size()) {
    machine_.epsilon(from, to);
    sorted = sorted.subspan(1);
  }
  while (!sorted.empty()) {
    const char next = sorted.front()[end];
    const auto other = std::find_if(sorted.begin(), sorted.end(), [&](const std::string& s) { return s[end] != next; });
    const auto same = static_cast<std::size_t>(other - sorted.begin());
    write_texts(sorted.first(same), end, from, to);
    sorted = sorted.subspan(same);
  }
}

void SchemaRules::write_literal(const Json& value, const std::string& path, Form form, StateId from, StateId to) {
  if (const std::string* string = value.as_string()) {
    if (form == Form::no_string) return;
    if (form == Form::unquoted) return machine_.literal(from, *string, to);
    return machine_.literal(from, '"' + spelled(*string, Spelling::json) + '"', to);
  }
  if (form == Form::unquoted) return;
  const Json::Array* items = value.as_array();
  const Json::Object* members = value.as_object();
  if (const Json::Number* number = value.as_number(); number && number->text.find_first_of("NI") != std::string::npos)
    fail(ErrorKind::invalid_argument, "schema at {}: {} is no JSON number", path, number->text);
  if (!items && !members) return machine_.literal(from, value.dump(), to);
  const std::size_t size = items ? items->size() : members->size();
  from = machine_.literal(from, items ? "[" : "{");
  for (std::size_t i = 0; i < size; ++i) {
    if (i) from = machine_.literal(from, ",");
    StateId next = machine_.state();
    machine_.call(from, layout(), next);
    if (members) {
      next = machine_.literal(next, '"' + spelled((*members)[i].first, Spelling::json) + "\":");
      const StateId blank = machine_.state();
      machine_.epsilon(next, blank);
      machine_.edge(next, ' ', blank);
      next = blank;
    }
    from = machine_.state();
    write_literal(items ? (*items)[i] : (*members)[i].second, path, Form::json, next, from);
  }
  if (size > 0) {
    const StateId next = machine_.state();
    machine_.call(from, layout(), next);
    from = next;
  }
  machine_.edge(from, items ? ']' : '}', to);
}

void SchemaRules::write_numeric(const Json& schema, const std::string& path, bool integer, StateId from, StateId to) {
  if (schema.find("multipleOf"))
    refuse(path, "multipleOf", "is not supported; remove it, or list the values in \"enum\"");
  NumberBounds bounds;
  const auto bound = [&](const char* keyword) -> std::optional<std::int64_t> {
    const Json* value = schema.find(keyword);
    if (!value) return std::nullopt;
    const auto number = whole_number(*value);
    if (!number)
      refuse(
          path, keyword,
          "must be a whole number; fractions as bounds are not supported, remove it or widen it to the next integer");
    if (*number > kMostInteger || *number < -kMostInteger)
      refuse(path, keyword, fmt::format("is {}; bounds are supported up to 18 digits", *number));
    return number;
  };
  if (const auto least = bound("minimum")) bounds.least = *least;
  if (const auto most = bound("maximum")) bounds.most = *most;
  if (const auto above = bound("exclusiveMinimum"); above && *above >= bounds.least) {
    bounds.least = integer ? *above + 1 : *above;
    bounds.above_least = !integer;
  }
  if (const auto below = bound("exclusiveMaximum"); below && *below <= bounds.most) {
    bounds.most = integer ? *below - 1 : *below;
    bounds.below_most = !integer;
  }
  integer ? write_integer(machine_, bounds, from, to) : write_number(machine_, bounds, from, to);
}

void SchemaRules::write_string(const Json& schema, const std::string& path, Form form, StateId from, StateId to) {
  const Json* pattern = schema.find("pattern");
  const Json* format = schema.find("format");
  const bool counted = schema.find("minLength") || schema.find("maxLength");
  const std::uint32_t min = count(schema, path, "minLength", 0);
  const std::uint32_t max = count(schema, path, "maxLength", Machine::kNoLimit);
  if (max < min) refuse(path, "maxLength", fmt::format("is {}, below minLength {}", max, min));
  if (!pattern && !format && !counted && form == Form::json) return machine_.call(from, free_string(), to);
  StateId end = to;
  if (form == Form::json) {
    from = machine_.literal(from, "\"");
    end = machine_.state();
    machine_.edge(end, '"', to);
  }
  const Spelling spelling = form == Form::json ? Spelling::json : Spelling::raw;
  if (pattern || format) {
    const char* keyword = pattern ? "pattern" : "format";
    if (pattern && format) refuse(path, "format", "beside \"pattern\" is not supported; remove one of them");
    if (counted)
      refuse(path, keyword,
             "beside minLength or maxLength is not supported; put the length into the pattern, as in \"^[a-z]{2,5}$\"");
    const Json* text = pattern ? pattern : format;
    if (!text->as_string()) refuse(path, keyword, "must be a string");
    const std::string expression = pattern ? *pattern->as_string() : pattern_of_format(*format->as_string(), path);
    try {
      return write_pattern(machine_, characters_, expression, spelling, from, end);
    } catch (const Error& error) { refuse(path, keyword, fmt::format("cannot be enforced: {}", error.what())); }
  }
  const Text kind = form == Form::json ? Text::json : Text::raw;
  machine_.text(from, kind, characters_.free_character(kind), min, max, end);
}

void SchemaRules::write_array(const Json& schema, const std::string& path, StateId from, StateId to) {
  const std::uint32_t min = count(schema, path, "minItems", 0);
  std::uint32_t max = count(schema, path, "maxItems", Machine::kNoLimit);
  if (max < min) refuse(path, "maxItems", fmt::format("is {}, below minItems {}", max, min));
  if (const Json* unique = schema.find("uniqueItems"); unique && !(unique->as_bool() && !*unique->as_bool()))
    refuse(path, "uniqueItems", "is not supported; remove it");
  const Json* items = schema.find("items");
  if (items && items->as_array()) refuse(path, "items", "as a list is not supported; write \"prefixItems\"");
  const Json* prefix = schema.find("prefixItems");
  if (prefix && !prefix->as_array()) refuse(path, "prefixItems", "must be a list of schemas");
  const auto fixed = static_cast<std::uint32_t>(prefix ? prefix->as_array()->size() : 0);
  if (items && items->as_bool() && !*items->as_bool()) max = std::min(max, fixed);
  if (min > max) refuse(path, "minItems", fmt::format("is {}, but there are {} prefixItems and no others", min, max));

  const auto item = [&](std::uint32_t i) {
    if (i < fixed) return rule((*prefix->as_array())[i], fmt::format("{}/prefixItems/{}", path, i), Form::json);
    return items ? rule(*items, path + "/items", Form::json) : any(Form::json);
  };
  // before: the next item comes; behind: one has come.
  StateId before = machine_.state(), last = machine_.state();
  from = machine_.literal(from, "[");
  if (min == 0) machine_.edge(from, ']', to);
  machine_.edge(last, ']', to);
  if (max == 0) return;
  machine_.call(from, layout(), before);
  const std::uint32_t end = max == Machine::kNoLimit ? std::max(min, fixed + 1) : max;
  for (std::uint32_t i = 0; i < end; ++i) {
    const StateId behind = machine_.state();
    machine_.call(before, item(i), behind);
    if (i + 1 >= min) machine_.call(behind, layout(), last);
    if (i + 1 == max) break;
    const StateId comma = machine_.literal(behind, ",");
    if (i + 1 < end) before = machine_.state();
    machine_.call(comma, layout(), before);  // behind the last one that is written out: the same again
  }
}

void SchemaRules::write_object(const Members& members, StateId from, StateId to) {
  const auto free_names = [](const Members& m) {
    std::vector<std::string> names;
    names.reserve(m.listed.size());
    for (const Member& member : m.listed) names.push_back(member.name);
    return names;
  };
  // Names that are used belong to a rule of its own.
  if (members.open) {
    const RuleId id = machine_.rule();
    machine_.rule_at(id).names = free_names(members);
    machine_.call(from, id, to);
    from = machine_.rule_at(id).start;
    to = machine_.rule_at(id).final;
  }
  const std::size_t size = members.listed.size();
  std::vector<bool> may_end(size + 1, true);  // no required member from i on
  for (std::size_t i = size; i-- > 0;) may_end[i] = may_end[i + 1] && !members.listed[i].required;

  const StateId last = machine_.state();
  machine_.edge(last, '}', to);
  from = machine_.literal(from, "{");
  if (may_end[0]) machine_.edge(from, '}', to);
  if (size == 0 && !members.open) return;
  // choice: a member from i on comes now.
  StateId choice = machine_.state();
  machine_.call(from, layout(), choice);
  const auto value = [&](StateId at, RuleId rule) {
    const StateId blank = machine_.state(), behind = machine_.state();
    machine_.epsilon(at, blank);
    machine_.edge(at, ' ', blank);
    machine_.call(blank, rule, behind);
    return behind;
  };
  StateId behind = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const Member& member = members.listed[i];
    const StateId name = machine_.literal(choice, '"' + spelled(member.name, Spelling::json) + "\":");
    behind = value(name, member.schema ? rule(*member.schema, member.path, Form::json) : any(Form::json));
    if (may_end[i + 1]) machine_.call(behind, layout(), last);
    if (i + 1 == size && !members.open) return;
    const StateId next = machine_.state();
    machine_.call(machine_.literal(behind, ","), layout(), next);
    if (!member.required) machine_.epsilon(choice, next);
    choice = next;
  }
  const StateId open = machine_.state(), closed = machine_.state();
  machine_.edge(choice, '"', '"', open, NameAction::open);
  write_free_name(open, CharacterSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}), '"', closed);
  behind = value(machine_.literal(closed, ":"),
                 members.others ? rule(*members.others, members.others_path, Form::json) : any(Form::json));
  machine_.call(behind, layout(), last);
  machine_.call(machine_.literal(behind, ","), layout(), choice);
}

void SchemaRules::write_free_name(StateId from, const CharacterSet& without, char end, StateId to) {
  utf8_edges(machine_, from, without.complement(), from, NameAction::extend);
  const auto byte = static_cast<unsigned char>(end);
  machine_.edge(from, byte, byte, to, NameAction::close);
  if (end == '"' && without.ranges().size() == 3) machine_.mark_text(from, Text::json, Machine::kNoLimit);
}

}  // namespace hadal::grammar
