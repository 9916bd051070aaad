#include "grammar/tools.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "grammar/schema.h"
#include "text/prompt_v41.h"

namespace hadal::grammar {
namespace {

// Text of the markup: the DSML mark in it is a control token.
StateId markup(Machine& m, StateId from, std::string_view text) {
  for (;;) {
    const std::size_t at = text.find(text::v41::dsml);
    from = m.literal(from, text.substr(0, at));
    if (at == std::string_view::npos) return from;
    const StateId next = m.state();
    m.edge(from, kDsml, kDsml, next);
    from = next;
    text.remove_prefix(at + text::v41::dsml.size());
  }
}

void check_name(std::string_view what, const std::string& name) {
  const bool bad = name.empty() || std::any_of(name.begin(), name.end(), [](char c) {
                     return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '<' || c == '>';
                   });
  if (bad)
    fail(ErrorKind::invalid_argument,
         "{} \"{}\" cannot be called: names must not be empty and have none of \" < > or control characters", what,
         name);
}

// What a parameter's tag says behind its name, its value and the closing tag.
void parameter_value(Machine& m, SchemaRules& rules, const text::Json* schema, const std::string& path, StateId from,
                     StateId to) {
  const StateId end = m.state();
  for (const Form form : {Form::unquoted, Form::no_string}) {
    const StateId value = markup(m, from, form == Form::unquoted ? " string=\"true\">" : " string=\"false\">");
    m.call(value, schema ? rules.rule(*schema, path, form) : rules.any(form), end);
  }
  m.epsilon(markup(m, end, "</｜DSML｜ parameter>"), to);
}

// From behind the opening tag of an invoke, and its line break, to behind the closing tag.
void parameters(Machine& m, SchemaRules& rules, const SchemaRules::Members& members, StateId from, StateId to) {
  constexpr std::string_view kClose = "</｜DSML｜ invoke>";
  if (members.open) {
    const RuleId id = m.rule();
    for (const SchemaRules::Member& member : members.listed) m.rule_at(id).names.push_back(member.name);
    m.call(from, id, to);
    from = m.rule_at(id).start;
    to = m.rule_at(id).final;
  }
  const std::size_t size = members.listed.size();
  std::vector<bool> may_end(size + 1, true);
  for (std::size_t i = size; i-- > 0;) may_end[i] = may_end[i + 1] && !members.listed[i].required;

  const StateId close = m.state(), last = m.state();  // last: a parameter came, its line break is still to come
  m.epsilon(markup(m, close, kClose), to);
  m.edge(last, '\n', close);
  if (may_end[0]) {  // without parameters the prompt format has an empty line
    m.epsilon(from, close);
    m.epsilon(from, last);
  }
  StateId choice = m.state();
  m.epsilon(from, choice);
  constexpr std::string_view kOpen = "<｜DSML｜ parameter name=\"";
  for (std::size_t i = 0; i < size; ++i) {
    const SchemaRules::Member& member = members.listed[i];
    const StateId behind = m.state(), next = m.state();
    const StateId name = markup(m, choice, kOpen);
    parameter_value(m, rules, member.schema, member.path, m.literal(name, member.name + '"'), behind);
    if (may_end[i + 1]) m.epsilon(behind, last);
    m.edge(behind, '\n', next);
    if (!member.required) m.epsilon(choice, next);
    choice = next;
  }
  if (!members.open) return;
  const StateId before = markup(m, choice, kOpen.substr(0, kOpen.size() - 1));
  const StateId name = m.state(), named = m.state(), behind = m.state();
  m.edge(before, '"', '"', name, NameAction::open);
  // A first character, so that the name is not empty.
  const CharacterSet without({{0, 0x1F}, {'"', '"'}, {'<', '<'}, {'>', '>'}});
  const StateId more = m.state();
  utf8_edges(m, name, without.complement(), more, NameAction::extend);
  rules.write_free_name(more, without, '"', named);
  parameter_value(m, rules, members.others, members.others_path, named, behind);
  m.epsilon(behind, last);
  m.edge(behind, '\n', choice);
}

}  // namespace

void write_tool_calls(Machine& m, const std::vector<Tool>& tools, const ToolChoice& choice, const text::Json* answer) {
  const RuleId root = m.rule();
  const StateId start = m.rule_at(root).start, done = m.state(), end = m.state();
  m.edge(done, kEnd, kEnd, end);
  m.edge(end, kEnd, kEnd, end);
  m.epsilon(end, m.rule_at(root).final);

  // before: a call comes; behind: a call has come.
  const StateId before = m.state(), behind = m.state();
  std::set<std::string> names;
  for (const Tool& tool : tools) {
    check_name("tool", tool.name);
    if (!names.insert(tool.name).second)
      fail(ErrorKind::invalid_argument, "two tools have the name \"{}\"; give each its own", tool.name);
    if (choice.kind == ToolChoice::named && tool.name != choice.name) continue;
    const std::string path = fmt::format("{}#", tool.name);
    SchemaRules rules(m, tool.parameters, path);
    SchemaRules::Members members;
    const bool none =
        tool.parameters.is_null() || (tool.parameters.as_object() && tool.parameters.as_object()->empty());
    if (!tool.enforce)
      members.open = true;
    else if (!none)
      members = rules.members_of_object(tool.parameters, path);
    for (const SchemaRules::Member& member : members.listed) check_name("parameter", member.name);
    const StateId opened = markup(m, before, "<｜DSML｜ invoke name=\"" + tool.name + "\">\n");
    parameters(m, rules, members, opened, behind);
  }
  if (choice.kind == ToolChoice::named && !names.count(choice.name))
    fail(ErrorKind::invalid_argument, "tool_choice names \"{}\", which is not among the tools", choice.name);
  if (choice.kind != ToolChoice::automatic && names.empty())
    fail(ErrorKind::invalid_argument, "tool_choice asks for a call, but there are no tools");
  if (choice.parallel) m.edge(behind, '\n', before);
  m.epsilon(markup(m, behind, "\n</｜DSML｜ calls>"), done);

  constexpr std::string_view kOpen = "<｜DSML｜ calls>\n";
  if (choice.opened) {
    m.epsilon(start, before);
  } else if (choice.kind == ToolChoice::automatic && answer == nullptr) {
    CharacterRules characters(m);
    const StateId text = m.state();
    m.text(start, Text::raw, characters.free_character(Text::raw), 0, Machine::kNoLimit, text);
    m.epsilon(text, done);
    m.epsilon(markup(m, text, kOpen), before);
  } else {
    m.epsilon(markup(m, start, "\n\n" + std::string(kOpen)), before);
    if (choice.kind == ToolChoice::automatic)
      m.call(start, SchemaRules(m, *answer).rule(*answer, "#", Form::json), done);
  }
}

}  // namespace hadal::grammar
