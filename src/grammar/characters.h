// Sets of characters, and their spellings as bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grammar/machine.h"

namespace hadal::grammar {

// Sorted, disjoint, inclusive ranges of code points, without surrogates.
class CharacterSet {
 public:
  using Range = std::pair<std::uint32_t, std::uint32_t>;
  static CharacterSet all() { return CharacterSet({{0, 0x10FFFF}}); }

  CharacterSet() = default;
  explicit CharacterSet(std::vector<Range> ranges);  // in any order, overlapping
  void add(std::uint32_t first, std::uint32_t last);
  void add(const CharacterSet& other);
  CharacterSet complement() const;
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator<(const CharacterSet& other) const { return ranges_ < other.ranges_; }

 private:
  void normalise();
  std::vector<Range> ranges_;
};

// How text stands in the output.
enum class Spelling {
  json,  // inside quotes: quotes, backslashes and control characters as json.dumps escapes them, all else as it is
  raw,   // as it is
};

// The bytes of a string in a spelling, without quotes.
std::string spelled(std::string_view text, Spelling spelling);

// Writes characters into a machine; sets that are not ASCII become rules, each once.
class CharacterRules {
 public:
  explicit CharacterRules(Machine& machine) : machine_(machine) {}
  void one_of(StateId from, const CharacterSet& set, Spelling spelling, StateId to);

  // Rules of one character of free text. In JSON every escape that JSON has is possible there, a surrogate only in pairs.
  RuleId free_character(Text kind);

 private:
  void bytes(StateId from, const CharacterSet& set, Spelling spelling, StateId to);

  Machine& machine_;
  std::map<std::pair<CharacterSet, Spelling>, RuleId> rules_;
  RuleId free_[3] = {Machine::kNoRule, Machine::kNoRule, Machine::kNoRule};
};

// Edges for the UTF-8 of all characters of the set, each with `name`.
void utf8_edges(Machine& machine, StateId from, const CharacterSet& set, StateId to,
                NameAction name = NameAction::none);

}  // namespace hadal::grammar
