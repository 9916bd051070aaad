// A pattern as a tree: between regex.cc, which reads it, and regex_states.cc, which writes its automaton.
#pragma once

#include <string_view>
#include <vector>

#include "grammar/characters.h"

namespace hadal::grammar {

struct PatternNode {
  enum Kind { characters, sequence, alternatives, repeat } kind = sequence;
  CharacterSet set;
  std::vector<PatternNode> parts;  // of repeat: one
  int min = 0, max = -1;           // max -1: no limit
};

// With what may stand in front and behind where an anchor is missing. Throws as write_pattern does.
PatternNode parse_pattern(std::string_view pattern);

}  // namespace hadal::grammar
