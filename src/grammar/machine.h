// A grammar over bytes: rules that call each other, each a small non-deterministic automaton.
//
// Symbols are bytes and the few control tokens that are part of a text's form. A rule has one start and one final state;
// an edge consumes a symbol, an epsilon nothing, a call runs another rule and continues behind it. What has been read is
// described by a set of configurations (state, return stack); Automaton makes these sets, one at a time, into the states of a
// deterministic automaton.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace hadal::grammar {

using Symbol = std::uint16_t;
inline constexpr Symbol kDsml = 256;  // the control token that marks tags of tool calls
inline constexpr Symbol kEnd = 257;   // end of sequence
inline constexpr int kSymbols = 258;

using StateId = std::uint32_t;
using RuleId = std::uint32_t;

// Names of members that the grammar does not list must not repeat in one object. What an edge does to the names of the object
// that its rule stands for:
enum class NameAction : std::uint8_t { none, open, extend, close };

struct Edge {
  Symbol first, last;  // inclusive
  NameAction name;
  StateId to;
};

struct Call {
  RuleId rule;
  StateId to;
};

// Free text: any characters may follow, up to `room` of them. The automaton uses it to allow most of a vocabulary at once.
enum class Text : std::uint8_t {
  none,
  json,  // inside quotes: characters that need no escape
  raw,   // between tags: any characters; '<' may begin the closing tag
};

class Machine {
 public:
  static constexpr std::size_t kMaxStates = 100'000;
  static constexpr int kMaxDepth = 200;  // of the return stack
  static constexpr std::uint32_t kNoLimit = std::numeric_limits<std::uint32_t>::max();

  struct State {
    std::vector<Edge> edges;
    std::vector<StateId> epsilons;
    std::vector<Call> calls;
    Text text = Text::none;
    bool final = false;
    bool reads_safe_json = false, reads_safe_raw = false;  // has an edge for a byte of that kind of safe text
    std::uint32_t room = 0;
    int need = kUnreachable;  // stack that the cheapest way to the end of the rule takes
  };
  struct Rule {
    StateId start = 0, final = 0;
    std::vector<std::string> names;  // listed in the object, hence never free
  };

  StateId state();
  RuleId rule();
  void edge(StateId from, Symbol first, Symbol last, StateId to, NameAction name = NameAction::none) {
    states_[from].edges.push_back({first, last, name, to});
  }
  void edge(StateId from, char byte, StateId to) {
    const auto symbol = static_cast<unsigned char>(byte);
    edge(from, symbol, symbol, to);
  }
  void epsilon(StateId from, StateId to) { states_[from].epsilons.push_back(to); }
  void call(StateId from, RuleId rule, StateId to) { states_[from].calls.push_back({rule, to}); }
  // The state behind exactly these bytes.
  StateId literal(StateId from, std::string_view bytes);
  void literal(StateId from, std::string_view bytes, StateId to) { epsilon(literal(from, bytes), to); }
  // Appends one rule call for each character, at least `min` and at most `max` of them, to `to`.
  void text(StateId from, Text kind, RuleId character, std::uint32_t min, std::uint32_t max, StateId to);
  void mark_text(StateId at, Text kind, std::uint32_t room) {
    states_[at].text = kind;
    states_[at].room = room;
  }
  // The rule of one character of free text, whose configurations `text` implies.
  void set_character_rule(Text kind, RuleId rule) { characters_[static_cast<int>(kind)] = rule; }

  // What the messages about size call the place.
  void set_place(std::string place) { place_ = std::move(place); }

  // After the last change: prepares what the automaton reads. False when no finite text satisfies the root rule (rule 0).
  bool finish();

  const State& at(StateId id) const { return states_[id]; }
  const Rule& rule_at(RuleId id) const { return rules_[id]; }
  Rule& rule_at(RuleId id) { return rules_[id]; }
  std::size_t size() const { return states_.size(); }
  int classes() const { return classes_; }
  int class_of(Symbol symbol) const { return class_of_[symbol]; }
  // The start of the rule of one character of this kind; npos when the grammar has none.
  StateId character_start(Text kind) const {
    const RuleId rule = characters_[static_cast<int>(kind)];
    return rule == kNoRule ? kNoRule : rules_[rule].start;
  }
  static constexpr RuleId kNoRule = std::numeric_limits<RuleId>::max();
  static constexpr int kUnreachable = 1 << 20;

 private:
  std::vector<State> states_;
  std::vector<Rule> rules_;
  std::array<RuleId, 3> characters_{kNoRule, kNoRule, kNoRule};
  std::array<std::uint16_t, kSymbols> class_of_{};
  int classes_ = 0;
  std::string place_;
};

// Bytes of the characters that free text of a kind takes without a look at the grammar.
bool is_safe_byte(Text kind, unsigned byte);

}  // namespace hadal::grammar
