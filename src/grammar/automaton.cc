#include "grammar/automaton.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace hadal::grammar {
namespace {

std::size_t mix(std::size_t hash, std::uint32_t value) { return (hash ^ value) * 0x9E3779B97F4A7C15u + (hash >> 29); }

}  // namespace

std::size_t Automaton::Hash::operator()(const std::vector<Frame>& frames) const {
  std::size_t hash = frames.size();
  for (const Frame& f : frames) hash = mix(mix(mix(hash, f.to), f.names), f.below);
  return hash;
}

std::size_t Automaton::Hash::operator()(const std::vector<Config>& configs) const {
  std::size_t hash = configs.size();
  for (const Config& c : configs) hash = mix(mix(mix(hash, c.state), c.names), c.stack);
  return hash;
}

Automaton::Automaton(std::shared_ptr<const Machine> machine, std::shared_ptr<const Vocabulary> vocabulary)
    : machine_(std::move(machine)), vocabulary_(std::move(vocabulary)) {
  first_.resize(machine_->size());
  first_mark_.resize(machine_->size(), 0);
  used_.emplace_back();
  names_of({});
  stack_of({});
  begin_set();
  add(machine_->rule_at(0).start, 0, 0);
  start_ = end_set();
}

std::uint32_t Automaton::used_after(std::uint32_t before, const std::string& name) {
  const auto [it, fresh] = used_ids_.try_emplace({before, name}, static_cast<std::uint32_t>(used_.size()));
  if (fresh) used_.push_back(it->first);
  return it->second;
}

Automaton::NamesId Automaton::names_of(const Names& names) {
  const auto [it, fresh] = names_ids_.emplace(names, static_cast<NamesId>(names_.size()));
  if (fresh) names_.push_back(names);
  return it->second;
}

Automaton::NamesId Automaton::names_of_rule(RuleId rule) {
  if (rule >= rule_names_.size()) rule_names_.resize(rule + 1, kNoNames);
  if (rule_names_[rule] != kNoNames) return rule_names_[rule];
  std::uint32_t used = 0;
  for (const std::string& name : machine_->rule_at(rule).names) used = used_after(used, name);
  return rule_names_[rule] = names_of({used, Names::between, {}});
}

Automaton::StackId Automaton::stack_of(std::vector<Frame> frames) {
  const auto it = stack_ids_.find(frames);
  if (it != stack_ids_.end()) return it->second;
  Stack stack;
  for (const Frame& frame : frames) {
    const Stack& below = stacks_[frame.below];
    stack.depth = std::max(stack.depth, below.depth + 1);
    stack.pending |= below.pending || names_[frame.names].kind == Names::pending;
  }
  stack.frames = frames;
  const auto id = static_cast<StackId>(stacks_.size());
  stacks_.push_back(std::move(stack));
  stack_ids_.emplace(std::move(frames), id);
  return id;
}

Automaton::StackId Automaton::merge(StackId a, StackId b) {
  if (a == b) return a;
  std::vector<Frame> both;
  std::merge(stacks_[a].frames.begin(), stacks_[a].frames.end(), stacks_[b].frames.begin(), stacks_[b].frames.end(),
             std::back_inserter(both));
  std::vector<Frame> frames;
  for (const Frame& frame : both)
    if (!frames.empty() && frames.back().to == frame.to && frames.back().names == frame.names)
      frames.back().below = merge(frames.back().below, frame.below);
    else
      frames.push_back(frame);
  return stack_of(std::move(frames));
}

void Automaton::begin_set() {
  ++round_;
  set_.clear();
  same_state_.clear();
  queue_.clear();
  calls_.clear();
}

void Automaton::add(StateId state, NamesId names, StackId stack) {
  // A way that cannot be completed within the depth limit is not begun, so that every state has a way to the end.
  if (machine_->at(state).need + stacks_[stack].depth > Machine::kMaxDepth) return;
  const auto place = static_cast<std::uint32_t>(set_.size());
  std::uint32_t before = 0;
  if (first_mark_[state] == round_) {
    before = first_[state] + 1;
    for (std::uint32_t i = before; i != 0; i = same_state_[i - 1]) {
      Config& config = set_[i - 1];
      if (config.names != names) continue;
      const StackId merged = merge(config.stack, stack);
      if (merged == config.stack) return;
      config.stack = merged;
      queue_.push_back(i - 1);
      return;
    }
  }
  first_mark_[state] = round_;
  first_[state] = place;
  same_state_.push_back(before);
  set_.push_back({state, names, stack});
  queue_.push_back(place);
}

// Returns and epsilons first, then all calls at once: many calls of one rule make one stack, not a chain of growing ones.
void Automaton::close_set() {
  while (!queue_.empty() || !calls_.empty()) {
    while (!queue_.empty()) {
      const Config config = set_[queue_.back()];
      queue_.pop_back();
      const Machine::State& at = machine_->at(config.state);
      for (const StateId to : at.epsilons) add(to, config.names, config.stack);
      for (const Call& call : at.calls)
        if (machine_->at(call.to).need + stacks_[config.stack].depth <= Machine::kMaxDepth)
          calls_.emplace_back(call.rule, Frame{call.to, config.names, config.stack});
      if (at.final) {
        // A copy: add may make stacks.
        const std::vector<Frame> frames = stacks_[config.stack].frames;
        for (const Frame& frame : frames) add(frame.to, frame.names, frame.below);
      }
    }
    std::sort(calls_.begin(), calls_.end());
    const auto calls = std::exchange(calls_, {});
    std::vector<Frame> frames;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto& [rule, frame] = calls[i];
      if (!frames.empty() && frames.back().to == frame.to && frames.back().names == frame.names)
        frames.back().below = merge(frames.back().below, frame.below);
      else
        frames.push_back(frame);
      if (i + 1 < calls.size() && calls[i + 1].first == rule) continue;
      add(machine_->rule_at(rule).start, names_of_rule(rule), stack_of(std::exchange(frames, {})));
    }
  }
}

Automaton::Id Automaton::end_set() {
  close_set();
  std::vector<Config> configs;
  for (const Config& config : set_) {
    const Machine::State& at = machine_->at(config.state);
    if (!at.edges.empty() || at.text != Text::none) configs.push_back(config);
  }
  if (configs.empty()) return kDead;
  std::sort(configs.begin(), configs.end());
  const auto [it, fresh] = ids_.emplace(configs, static_cast<Id>(states_.size()));
  if (!fresh) return it->second;
  State& state = states_.emplace_back();
  state.configs = std::move(configs);
  state.next.assign(machine_->classes(), kUnknown);
  for (const Config& config : state.configs) {
    const Names::Kind kind = names_[config.names].kind;
    state.in_name |= kind == Names::known || kind == Names::fresh;
    state.pending |= kind == Names::pending || stacks_[config.stack].pending;
  }
  find_text(state);
  return it->second;
}

// Free text of a kind stands for the whole state when no other configuration reads what it reads, or when its length is not limited.
void Automaton::find_text(State& state) const {
  for (const Text kind : {Text::json, Text::raw}) {
    std::uint32_t room = 0;
    bool others = false;
    for (const Config& config : state.configs) {
      const Machine::State& at = machine_->at(config.state);
      if (at.text == kind && stacks_[config.stack].depth < Machine::kMaxDepth)
        room = std::max(room, at.room);
      else if (config.state != machine_->character_start(kind))
        others |= kind == Text::json ? at.reads_safe_json : at.reads_safe_raw;
    }
    if (room == 0 || (others && room != Machine::kNoLimit)) continue;
    state.text = kind;
    state.room = room;
    return;
  }
}

bool Automaton::act(NameAction action, Symbol symbol, NamesId& id, StackId stack) {
  if (action == NameAction::none) return true;
  Names names = names_[id];
  const auto any_used = [&](const auto& test) {
    for (std::uint32_t at = names.used; at != 0; at = used_[at].before)
      if (test(used_[at].name)) return true;
    return false;
  };
  switch (action) {
    case NameAction::open:
      if (names.kind == Names::pending) return false;
      names.kind = names.used == 0 ? Names::fresh : Names::known;
      break;
    case NameAction::extend:
      if (names.kind == Names::fresh) return true;
      names.part += static_cast<char>(symbol);
      if (any_used([&](const std::string& name) { return name.starts_with(names.part); })) break;
      names.kind = Names::fresh;
      names.part.clear();
      break;
    case NameAction::close:
      if (stacks_[stack].pending) return false;
      if (names.kind == Names::known && any_used([&](const std::string& name) { return name == names.part; }))
        return false;
      names.kind = Names::pending;
      names.part.clear();
      break;
    case NameAction::none: break;
  }
  id = names_of(names);
  return true;
}

Automaton::Id Automaton::compute_step(Id from, Symbol symbol) {
  begin_set();
  for (const Config& config : states_[from].configs)
    for (const Edge& edge : machine_->at(config.state).edges) {
      if (symbol < edge.first || symbol > edge.last) continue;
      NamesId names = config.names;
      if (act(edge.name, symbol, names, config.stack)) add(edge.to, names, config.stack);
    }
  return set_.empty() ? kDead : end_set();
}

template <typename Rename>
Automaton::StackId Automaton::copy_stack(const Automaton& from, StackId id, const Rename& rename,
                                         std::unordered_map<StackId, StackId>& done) {
  const auto it = done.find(id);
  if (it != done.end()) return it->second;
  StackId copied = stack_of({});
  const std::vector<Frame> frames = from.stacks_[id].frames;
  for (const Frame& frame : frames)
    copied = merge(copied, stack_of({{frame.to, rename(frame.names), copy_stack(from, frame.below, rename, done)}}));
  done.emplace(id, copied);
  return copied;
}

template <typename Rename>
Automaton::Id Automaton::copy(const Automaton& from, Id state, const Rename& rename) {
  std::unordered_map<StackId, StackId> done;
  std::vector<Config> configs = from.states_[state].configs;
  for (Config& config : configs)
    config = {config.state, rename(config.names), copy_stack(from, config.stack, rename, done)};
  begin_set();
  for (const Config& config : configs) add(config.state, config.names, config.stack);
  return end_set();
}

Automaton::Id Automaton::settle(Id state, std::string_view name) {
  return copy(*this, state, [&](NamesId id) {
    const Names& names = names_[id];
    if (names.kind != Names::pending) return id;
    return names_of({used_after(names.used, std::string(name)), Names::between, {}});
  });
}

Automaton::Id Automaton::import(const Automaton& from, Id state) {
  return copy(from, state, [&](NamesId id) {
    Names names = from.names_[id];
    std::vector<std::uint32_t> chain;
    for (std::uint32_t at = names.used; at != 0; at = from.used_[at].before) chain.push_back(at);
    names.used = 0;
    for (auto at = chain.rbegin(); at != chain.rend(); ++at) names.used = used_after(names.used, from.used_[*at].name);
    return names_of(names);
  });
}

void Automaton::walk(const Trie& trie, Id from, Mask& mask) {
  path_.resize(static_cast<std::size_t>(trie.depth) + 1);
  path_[0] = from;
  const std::size_t last = trie.nodes.size() - 1, limit = states_.size() + kMaxNewStates;
  for (std::size_t i = 0; i < last;) {
    const TrieNode& node = trie.nodes[i];
    const Id to = step(path_[node.depth - 1], node.byte);
    if (states_.size() > limit)
      fail(ErrorKind::invalid_argument,
           "the schema can be read in too many ways at once here; make its patterns less ambiguous");
    if (to == kDead) {
      i = node.next;
      continue;
    }
    path_[node.depth] = to;
    for (std::uint32_t t = node.tokens_begin; t != trie.nodes[i + 1].tokens_begin; ++t) set_bit(mask, trie.tokens[t]);
    ++i;
  }
}

const Mask& Automaton::mask(Id id) {
  State& state = states_[id];
  if (state.mask) return *state.mask;
  if (masked_.size() * vocabulary_->words() * sizeof(Mask::value_type) >= kMaxMaskBytes) {
    states_[masked_.front()].mask.reset();
    masked_.pop_front();
  }
  auto mask = std::make_unique<Mask>();
  if (state.text == Text::none) {
    mask->assign(vocabulary_->words(), 0);
    walk(vocabulary_->all(), id, *mask);
  } else {
    *mask = vocabulary_->safe(state.text, state.room);
    walk(vocabulary_->others(state.text), id, *mask);
  }
  const Vocabulary::Controls& controls = vocabulary_->controls();
  if (step(id, kEnd) != kDead) set_bit(*mask, controls.end);
  if (controls.dsml >= 0 && step(id, kDsml) != kDead) set_bit(*mask, controls.dsml);
  state.mask = std::move(mask);
  masked_.push_back(id);
  return *state.mask;
}

}  // namespace hadal::grammar
