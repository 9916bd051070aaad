// Patterns of JSON schemas.
#pragma once

#include <string_view>

#include "grammar/characters.h"
#include "grammar/machine.h"

namespace hadal::grammar {

// Writes "a string that the pattern matches" between two states. As in JSON Schema the pattern is searched for: without ^ and
// $ anything may stand before and behind it.
//
// The subset: characters; . (any but a line break); classes [a-z], [^a-z]; \d \D \w \W \s \S (ASCII; \s also the blanks that
// ECMA-262 names); escapes \t \n \r \f \v \0 \xHH \uHHHH (pairs of surrogates as one character) \u{H...} \cX and of
// punctuation; groups (...), (?:...), (?<name>...); alternatives |; repetition * + ? {n} {n,} {n,m}, greedy or not, which is
// the same here; ^ at the beginning and $ at the end of the pattern or of one of its outermost alternatives.
//
// Throws Error(invalid_argument) that says what stands where, for anything else: look-around, back references, word
// boundaries, Unicode properties, anchors elsewhere; and for a pattern whose deterministic automaton is too large.
void write_pattern(Machine& machine, CharacterRules& characters, std::string_view pattern, Spelling spelling,
                   StateId from, StateId to);

}  // namespace hadal::grammar
