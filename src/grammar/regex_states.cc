// From the tree of a pattern to a deterministic automaton.
//
// A grammar may be ambiguous, and then every token costs the engine's thread as much as there are ways to read the text so
// far: (.?){1500} has 1500 of them from the first character on. So patterns are made deterministic here, on the thread of
// the request, with a limit on states and work; whoever needs more is refused.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "grammar/regex.h"
#include "grammar/regex_tree.h"

namespace hadal::grammar {
namespace {

constexpr std::size_t kMaxStates = 5'000;
// Repetition gives about as many states as there are positions; many more come of texts that can be read in many ways at
// once, and among those every token of the vocabulary leads to another state.
constexpr std::size_t kFreeStates = 256, kStatesOfPosition = 2;
constexpr std::size_t kMaxPositions = 50'000;
// Members of sets and edges looked at: about 0.2 s, and 80 MB at most.
constexpr std::size_t kMaxWork = 20'000'000;

// Thompson's automaton: each state has at most one edge for characters, and any number of epsilons.
class Positions {
 public:
  explicit Positions(std::string_view pattern) : pattern_(pattern) {}

  struct State {
    int set = -1;  // index of sets(); -1: none
    std::uint32_t to = 0;
    std::vector<std::uint32_t> epsilons;
  };

  std::uint32_t state() {
    if (states_.size() >= kMaxPositions) too_large();
    states_.emplace_back();
    return static_cast<std::uint32_t>(states_.size() - 1);
  }

  void write(const PatternNode& node, std::uint32_t from, std::uint32_t to) {
    switch (node.kind) {
      case PatternNode::characters: {
        std::uint32_t at = from;
        if (states_[at].set >= 0) epsilon(from, at = state());
        states_[at].set = set_id(node.set);
        states_[at].to = to;
        return;
      }
      case PatternNode::sequence:
        for (const PatternNode& part : node.parts) {
          const std::uint32_t next = state();
          write(part, from, next);
          from = next;
        }
        return epsilon(from, to);
      case PatternNode::alternatives:
        for (const PatternNode& part : node.parts) {
          const std::uint32_t begin = state();  // also where a repetition begins that leads back
          epsilon(from, begin);
          write(part, begin, to);
        }
        return;
      case PatternNode::repeat: break;
    }
    const PatternNode& part = node.parts[0];
    const int least = node.min, more = node.max < 0 ? 0 : node.max - node.min;
    for (int i = 0; i < least + more; ++i) {
      const std::uint32_t next = state();
      if (i >= least) epsilon(from, to);
      write(part, from, next);
      from = next;
    }
    if (node.max < 0) {
      const std::uint32_t loop = state();
      epsilon(from, loop);
      write(part, loop, loop);
      from = loop;
    }
    epsilon(from, to);
  }

  [[noreturn]] void too_large() const {
    fail(ErrorKind::invalid_argument,
         "pattern \"{}\" takes more than {} states, or is too ambiguous; repeat less, and put it between ^ and $ where "
         "it is the whole string",
         pattern_, kMaxStates);
  }
  const State& at(std::uint32_t id) const { return states_[id]; }
  std::size_t size() const { return states_.size(); }
  const std::vector<CharacterSet>& sets() const { return sets_; }

 private:
  void epsilon(std::uint32_t from, std::uint32_t to) { states_[from].epsilons.push_back(to); }
  int set_id(const CharacterSet& set) {
    const auto [it, fresh] = ids_.try_emplace(set, static_cast<int>(sets_.size()));
    if (fresh) sets_.push_back(set);
    return it->second;
  }

  std::string_view pattern_;
  std::vector<State> states_;
  std::vector<CharacterSet> sets_;
  std::map<CharacterSet, int> ids_;
};

// Characters that the sets of a pattern do not tell apart are of one class.
class Classes {
 public:
  explicit Classes(const std::vector<CharacterSet>& sets) : of_set_(sets.size()) {
    std::map<std::uint32_t, std::vector<std::pair<int, bool>>> borders;  // where sets begin (true) and end
    for (std::size_t s = 0; s < sets.size(); ++s)
      for (const auto& [first, last] : sets[s].ranges()) {
        borders[first].emplace_back(static_cast<int>(s), true);
        borders[last + 1].emplace_back(static_cast<int>(s), false);
      }
    std::map<std::vector<int>, std::size_t> ids;
    std::vector<int> inside;  // sorted
    std::uint32_t begin = 0;
    for (const auto& [at, changes] : borders) {
      if (!inside.empty() && at > begin) {
        const auto [it, fresh] = ids.try_emplace(inside, ranges_.size());
        if (fresh) {
          ranges_.emplace_back();
          for (const int s : inside) of_set_[static_cast<std::size_t>(s)].push_back(it->second);
        }
        ranges_[it->second].emplace_back(begin, at - 1);
      }
      for (const auto& [s, begins] : changes) {
        const auto place = std::lower_bound(inside.begin(), inside.end(), s);
        if (begins)
          inside.insert(place, s);
        else
          inside.erase(place);
      }
      begin = at;
    }
  }

  std::size_t size() const { return ranges_.size(); }
  const std::vector<std::size_t>& of_set(int set) const { return of_set_[static_cast<std::size_t>(set)]; }
  const std::vector<CharacterSet::Range>& ranges(std::size_t id) const { return ranges_[id]; }

 private:
  std::vector<std::vector<CharacterSet::Range>> ranges_;
  std::vector<std::vector<std::size_t>> of_set_;
};

// Sets of positions that can be reached by the same strings, written into a machine one after another.
class Subsets {
 public:
  Subsets(const Positions& positions, Machine& machine, CharacterRules& characters, Spelling spelling, StateId to)
      : positions_(positions),
        classes_(positions.sets()),
        machine_(machine),
        characters_(characters),
        spelling_(spelling),
        to_(to),
        seen_(positions.size(), 0) {}

  StateId write(std::uint32_t start, std::uint32_t final) {
    final_ = final;
    const StateId first = state_of({start});
    for (std::size_t i = 0; i < todo_.size(); ++i) {
      const Set& set = *todo_[i];
      if (std::binary_search(set.begin(), set.end(), final)) machine_.epsilon(states_[set], to_);
      std::vector<Set> targets(classes_.size());
      for (const std::uint32_t p : set) {
        const Positions::State& at = positions_.at(p);
        if (at.set < 0) continue;
        for (const std::size_t c : classes_.of_set(at.set)) targets[c].push_back(at.to);
        work(classes_.of_set(at.set).size());
      }
      std::map<StateId, std::vector<CharacterSet::Range>> edges;
      for (std::size_t c = 0; c < targets.size(); ++c) {
        if (targets[c].empty()) continue;
        auto& ranges = edges[state_of(targets[c])];
        ranges.insert(ranges.end(), classes_.ranges(c).begin(), classes_.ranges(c).end());
        work(ranges.size());
      }
      for (auto& [target, ranges] : edges)
        characters_.one_of(states_[set], CharacterSet(std::move(ranges)), spelling_, target);
    }
    return first;
  }

 private:
  using Set = std::vector<std::uint32_t>;
  struct Hash {
    std::size_t operator()(const Set& set) const {
      std::size_t hash = set.size();
      for (const std::uint32_t p : set) hash = (hash ^ p) * 0x9E3779B97F4A7C15u + (hash >> 29);
      return hash;
    }
  };

  void work(std::size_t amount) {
    work_ += amount;
    if (work_ > kMaxWork) positions_.too_large();
  }

  // The state of the machine for a set, closed over epsilons. Positions without characters need not be told apart.
  StateId state_of(const Set& from) {
    ++round_;
    Set closed, open;
    for (const std::uint32_t p : from) visit(p, open);
    while (!open.empty()) {
      const std::uint32_t p = open.back();
      open.pop_back();
      const Positions::State& at = positions_.at(p);
      if (at.set >= 0 || p == final_) closed.push_back(p);
      for (const std::uint32_t next : at.epsilons) visit(next, open);
      work(1 + at.epsilons.size());
    }
    std::sort(closed.begin(), closed.end());
    const auto [it, fresh] = states_.try_emplace(std::move(closed), 0);
    if (!fresh) return it->second;
    if (todo_.size() == std::min(kMaxStates, std::max(kFreeStates, kStatesOfPosition * positions_.size())))
      positions_.too_large();
    it->second = machine_.state();
    todo_.push_back(&it->first);
    return it->second;
  }
  void visit(std::uint32_t p, Set& open) {
    if (seen_[p] == round_) return;
    seen_[p] = round_;
    open.push_back(p);
  }

  const Positions& positions_;
  const Classes classes_;
  Machine& machine_;
  CharacterRules& characters_;
  const Spelling spelling_;
  const StateId to_;
  std::uint32_t final_ = 0;
  std::vector<std::uint32_t> seen_;  // the round in which a position was last reached
  std::uint32_t round_ = 0;
  std::size_t work_ = 0;
  std::unordered_map<Set, StateId, Hash> states_;  // keys stay where they are
  std::vector<const Set*> todo_;
};

}  // namespace

void write_pattern(Machine& machine, CharacterRules& characters, std::string_view pattern, Spelling spelling,
                   StateId from, StateId to) {
  Positions positions(pattern);
  const std::uint32_t start = positions.state(), final = positions.state();
  positions.write(parse_pattern(pattern), start, final);
  machine.epsilon(from, Subsets(positions, machine, characters, spelling, to).write(start, final));
}

}  // namespace hadal::grammar
