#include "grammar/machine.h"

#include <algorithm>

#include "base/error.h"

namespace hadal::grammar {

bool is_safe_byte(Text kind, unsigned byte) {
  switch (kind) {
    case Text::json: return byte >= 0x20 && byte < 0x100 && byte != '"' && byte != '\\';
    case Text::raw: return byte < 0x100 && byte != '<';
    case Text::none: break;
  }
  return false;
}

StateId Machine::state() {
  if (states_.size() >= kMaxStates)
    fail(ErrorKind::invalid_argument,
         "{}the grammar takes more than {} states; use smaller minItems, maxItems, minLength or maxLength, shorter "
         "enums "
         "or simpler patterns",
         place_.empty() ? "" : place_ + ": ", kMaxStates);
  states_.emplace_back();
  return static_cast<StateId>(states_.size() - 1);
}

RuleId Machine::rule() {
  const StateId start = state(), final = state();
  states_[final].final = true;
  rules_.push_back({start, final, {}});
  return static_cast<RuleId>(rules_.size() - 1);
}

StateId Machine::literal(StateId from, std::string_view bytes) {
  for (const char byte : bytes) {
    const StateId next = state();
    edge(from, byte, next);
    from = next;
  }
  return from;
}

void Machine::text(StateId from, Text kind, RuleId character, std::uint32_t min, std::uint32_t max, StateId to) {
  const std::uint32_t last = max == kNoLimit ? min : max;
  StateId at = state();
  epsilon(from, at);
  for (std::uint32_t i = 0;; ++i) {
    mark_text(at, kind, max == kNoLimit ? kNoLimit : max - i);
    if (i >= min) epsilon(at, to);
    if (i == last) break;
    const StateId next = state();
    call(at, character, next);
    at = next;
  }
  if (max == kNoLimit) call(at, character, at);
}

bool Machine::finish() {
  // A symbol is in a class of its own wherever an edge begins or ends.
  std::array<bool, kSymbols + 1> cut{};
  cut[0] = cut[kDsml] = cut[kEnd] = true;
  for (const State& state : states_)
    for (const Edge& edge : state.edges) cut[edge.first] = cut[edge.last + 1] = true;
  classes_ = 0;
  for (int symbol = 0; symbol < kSymbols; ++symbol) {
    classes_ += cut[symbol];
    class_of_[symbol] = static_cast<std::uint16_t>(classes_ - 1);
  }

  for (State& state : states_)
    for (const Edge& edge : state.edges)
      for (unsigned byte = edge.first; byte <= edge.last; ++byte) {
        state.reads_safe_json |= is_safe_byte(Text::json, byte);
        state.reads_safe_raw |= is_safe_byte(Text::raw, byte);
      }

  // need: the fixed point of "the least over all ways on", from above. States mostly lead to later ones, so going backwards
  // settles it in a few rounds.
  for (State& state : states_) state.need = state.final ? 0 : kUnreachable;
  for (bool changed = true; changed;) {
    changed = false;
    for (auto state = states_.rbegin(); state != states_.rend(); ++state) {
      int need = state->need;
      for (const Edge& edge : state->edges) need = std::min(need, states_[edge.to].need);
      for (const StateId to : state->epsilons) need = std::min(need, states_[to].need);
      for (const Call& call : state->calls)
        need = std::min(need, std::max(1 + states_[rules_[call.rule].start].need, states_[call.to].need));
      if (need >= kUnreachable || need == state->need) continue;
      state->need = need;
      changed = true;
    }
  }
  return states_[rules_[0].start].need <= kMaxDepth;
}

}  // namespace hadal::grammar
