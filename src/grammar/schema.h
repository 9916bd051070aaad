// JSON Schema to rules.
//
// Every text of the rules is valid against the schema; of the valid texts, those are left out that the list below names. What
// the rules cannot express is refused with an error that names the place, the keyword and the remedy.
//
// - Layout: after '{', '[' and ',' and before the closing bracket of a list or object that is not empty: nothing, one blank, or
//   one line break with up to 32 blanks. After ':' nothing or one blank. Nothing elsewhere.
// - Members come in the order of `properties`; then required ones that `properties` lacks; then others, where
//   additionalProperties says true or gives a schema, or where the schema speaks of no member at all. Their names have no
//   escapes, and none comes twice. Without additionalProperties, an object with `properties` gets no others.
// - Strings that the schema does not spell out may use every escape of JSON. Names of members, enum, const, pattern and format have one
//   spelling: that of Python's json.dumps(ensure_ascii=False).
// - Numbers: numbers.h. A fraction or an exponent is never an integer. Bounds are integers.
// - anyOf and oneOf: one of the branches; that no other branch of oneOf fits is not checked.
// - A schema without `type` that has keywords of one type means that type.
// - Nesting ends at about 100 levels where it is not limited.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "grammar/characters.h"
#include "grammar/machine.h"
#include "text/json.h"

namespace hadal::grammar {

// The form in which a value stands in the text.
enum class Form {
  json,      // any value, as JSON
  unquoted,  // a string, as it is; other values do not exist
  no_string  // any value but a string, as JSON
};

class SchemaRules {
 public:
  // `root` must outlive the rules; references are looked up in it.
  SchemaRules(Machine& machine, const text::Json& root, std::string root_path = "#");

  // Writes the values of a schema between two states.
  void write(const text::Json& schema, const std::string& path, Form form, StateId from, StateId to);
  // The same as a rule, made once for each schema and form.
  RuleId rule(const text::Json& schema, const std::string& path, Form form);
  // Any value.
  RuleId any(Form form);

  // An object's members as the grammar writes them.
  struct Member {
    std::string name;
    const text::Json* schema;  // nullptr: any value
    std::string path;
    bool required = false;
  };
  struct Members {
    std::vector<Member> listed;
    bool open = false;                   // others may follow
    const text::Json* others = nullptr;  // their schema; nullptr: any value
    std::string others_path;
  };
  // Throws unless the schema, behind its references, is one of an object. For the parameters of a tool.
  Members members_of_object(const text::Json& schema, const std::string& path);

  // The characters of a name that is not listed, with the actions that keep it from coming twice, between two states. `end`
  // is the byte that ends it; `without`: characters that it cannot contain.
  void write_free_name(StateId from, const CharacterSet& without, char end, StateId to);

 private:
  using Json = text::Json;

  const Json& target(const Json& schema, const std::string& path, std::string& target_path) const;
  void check_unit_cycles(const Json& schema, const std::string& path, int depth);

  // Texts with a common beginning share it (of these the first `at` bytes are written), or a long list would be read in as
  // many ways as it has entries.
  void write_texts(std::span<const std::string> sorted, std::size_t at, StateId from, StateId to);
  void write_literal(const Json& value, const std::string& path, Form form, StateId from, StateId to);
  void write_type(const std::string& type, const Json& schema, const std::string& path, Form form, StateId from,
                  StateId to);
  void write_numeric(const Json& schema, const std::string& path, bool integer, StateId from, StateId to);
  void write_string(const Json& schema, const std::string& path, Form form, StateId from, StateId to);
  void write_array(const Json& schema, const std::string& path, StateId from, StateId to);
  void write_object(const Members& members, StateId from, StateId to);
  Members members(const Json& schema, const std::string& path) const;

  RuleId layout();       // nothing, a blank, or a line break and blanks
  RuleId free_string();  // with its quotes

  Machine& machine_;
  CharacterRules characters_;
  const Json& root_;
  std::string root_path_;
  std::map<std::pair<const Json*, Form>, RuleId> rules_;
  std::map<const Json*, bool> unit_checked_;  // false: under way
  int depth_ = 0;
  RuleId any_[3] = {Machine::kNoRule, Machine::kNoRule, Machine::kNoRule};
  RuleId layout_ = Machine::kNoRule, free_string_ = Machine::kNoRule;
};

}  // namespace hadal::grammar
