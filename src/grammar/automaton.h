// The deterministic automaton of a machine, made while it is used.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/machine.h"
#include "grammar/vocabulary.h"

namespace hadal::grammar {

// A state is a set of configurations: a state of the machine, the names used in its object, and a return stack. Stacks are shared:
// a stack is a set of frames, a frame a return state and the stack below it; two configurations that differ in nothing but
// their stacks become one with the union. So a state has at most one configuration for each state of the machine (times
// names), however ambiguous the grammar is.
//
// Not thread-safe: hold `mutex` around a call.
class Automaton {
 public:
  using Id = std::int32_t;
  static constexpr Id kDead = -1;

  Automaton(std::shared_ptr<const Machine> machine, std::shared_ptr<const Vocabulary> vocabulary);

  std::mutex mutex;

  Id start() const { return start_; }
  // The state after `symbol`, or kDead.
  Id step(Id from, Symbol symbol) {
    Id& next = states_[from].next[machine_->class_of(symbol)];
    if (next == kUnknown) next = compute_step(from, symbol);
    return next;
  }

  // Inside the name of a member that the grammar does not list. Behind it the name is pending: a walk over tokens does not
  // keep it. Until `settle` has told the name no other name may end, so that none is used twice.
  bool in_name(Id state) const { return states_[state].in_name; }
  bool name_pending(Id state) const { return states_[state].pending; }
  Id settle(Id state, std::string_view name);

  // Tokens that may come next. Valid until the next call. Throws Error(invalid_argument) when that takes more new states than
  // the engine's thread can be held up for.
  const Mask& mask(Id id);

  // Kept small: past its limits, users move on to a fresh automaton.
  bool full() const { return states_.size() > kMaxStates || stacks_.size() > kMaxStates; }
  Id import(const Automaton& from, Id state);

  std::size_t size() const { return states_.size(); }

 private:
  static constexpr std::size_t kMaxStates = 10'000;
  static constexpr std::size_t kMaxNewStates = 3'000;  // of one mask: about 10 ms
  static constexpr std::size_t kMaxMaskBytes = 4 << 20;
  static constexpr Id kUnknown = -2;

  using NamesId = std::uint32_t;
  using StackId = std::uint32_t;
  static constexpr NamesId kNoNames = ~NamesId{0};
  struct Frame {
    StateId to;
    NamesId names;
    StackId below;
    auto operator<=>(const Frame&) const = default;
  };
  struct Stack {
    std::vector<Frame> frames;  // sorted; (to, names) is unique
    int depth = 0;
    bool pending = false;
  };
  struct Config {
    StateId state;
    NamesId names;
    StackId stack;
    auto operator<=>(const Config&) const = default;
  };
  // The names of one object, and how far the current one has been read.
  struct Names {
    enum Kind : std::uint8_t {
      between,
      known,    // the name so far, `part`, begins a used one
      fresh,    // it cannot become a used one any more
      pending,  // it has ended
    };
    std::uint32_t used = 0;  // the last used one, in used_; 0: none
    Kind kind = between;
    std::string part;
    auto operator<=>(const Names&) const = default;
  };
  struct State {
    std::vector<Config> configs;
    std::vector<Id> next;  // by class of symbols
    Text text = Text::none;
    std::uint32_t room = 0;  // characters of safe text that may follow, when text is set
    bool in_name = false, pending = false;
    std::unique_ptr<Mask> mask;
  };
  struct Hash {
    std::size_t operator()(const std::vector<Frame>& frames) const;
    std::size_t operator()(const std::vector<Config>& configs) const;
  };

  Id compute_step(Id from, Symbol symbol);
  void begin_set();
  void add(StateId state, NamesId names, StackId stack);
  void close_set();
  Id end_set();
  void find_text(State& state) const;
  StackId stack_of(std::vector<Frame> frames);
  StackId merge(StackId a, StackId b);
  NamesId names_of(const Names& names);
  std::uint32_t used_after(std::uint32_t before, const std::string& name);
  NamesId names_of_rule(RuleId rule);
  // Names after one more symbol; false when the name is taken.
  bool act(NameAction action, Symbol symbol, NamesId& id, StackId stack);
  void walk(const Trie& trie, Id from, Mask& mask);

  // A state with other names: of this automaton, or of another one for the same machine.
  template <typename Rename>
  Id copy(const Automaton& from, Id state, const Rename& rename);
  template <typename Rename>
  StackId copy_stack(const Automaton& from, StackId id, const Rename& rename,
                     std::unordered_map<StackId, StackId>& done);

  std::shared_ptr<const Machine> machine_;
  std::shared_ptr<const Vocabulary> vocabulary_;

  std::deque<State> states_;
  std::unordered_map<std::vector<Config>, Id, Hash> ids_;
  std::deque<Stack> stacks_;
  std::unordered_map<std::vector<Frame>, StackId, Hash> stack_ids_;
  std::vector<Names> names_;
  std::map<Names, NamesId> names_ids_;
  // Used names of an object, each with those before it, so that lists share their beginnings.
  struct Used {
    std::uint32_t before;
    std::string name;
    auto operator<=>(const Used&) const = default;
  };
  std::vector<Used> used_;
  std::map<Used, std::uint32_t> used_ids_;
  std::vector<NamesId> rule_names_;  // at the start of a rule; kNoNames: not asked for yet
  Id start_ = kDead;
  std::deque<Id> masked_;  // states that have a mask, oldest first

  // The set under construction.
  std::vector<Config> set_;
  std::vector<std::uint32_t> same_state_;          // the next of the set with the same machine state, plus 1
  std::vector<std::pair<RuleId, Frame>> calls_;    // to make when the queue is empty
  std::vector<std::uint32_t> queue_;               // members to look at
  std::vector<std::uint32_t> first_, first_mark_;  // by machine state; the first is valid where the mark is the round's
  std::uint32_t round_ = 0;
  std::vector<Id> path_;  // of a walk, by depth
};

}  // namespace hadal::grammar
