#include "grammar/grammar.h"

#include <algorithm>
#include <functional>
#include <list>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/schema.h"
#include "text/prompt_v41.h"
#include "text/unicode.h"

namespace hadal::grammar {
namespace {

// Bytes of a schema's text.
constexpr std::size_t kMostSchemaBytes = 1 << 20;

void check_text(std::string_view what, std::string_view text) {
  if (text.size() > kMostSchemaBytes)
    fail(ErrorKind::invalid_argument, "{} {} bytes long; at most {} are supported", what, text.size(),
         kMostSchemaBytes);
  if (text::valid_utf8_prefix(text) != text.size()) fail(ErrorKind::invalid_argument, "{} not UTF-8", what);
}

// A compiled grammar, and the automaton that its requests share at the moment.
class Grammar {
 public:
  Grammar(std::shared_ptr<const Machine> machine, std::shared_ptr<const Vocabulary> vocabulary)
      : machine_(std::move(machine)),
        vocabulary_(std::move(vocabulary)),
        current_(std::make_shared<Automaton>(machine_, vocabulary_)) {
    current_->mask(current_->start());  // here, not on the engine's thread
  }

  std::shared_ptr<Automaton> current() {
    const std::lock_guard lock(mutex_);
    return current_;
  }
  // What takes the place of a full automaton.
  std::shared_ptr<Automaton> successor(const std::shared_ptr<Automaton>& full) {
    const std::lock_guard lock(mutex_);
    if (current_ == full) current_ = std::make_shared<Automaton>(machine_, vocabulary_);
    return current_;
  }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  const std::shared_ptr<const Machine> machine_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::mutex mutex_;
  std::shared_ptr<Automaton> current_;
};

void copy_mask(const Mask& mask, std::span<std::uint64_t> out) {
  HADAL_CHECK(out.size() >= mask.size());
  std::copy(mask.begin(), mask.end(), out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(mask.size()), out.end(), 0);
}

class GrammarConstraint final : public Constraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<Grammar> grammar)
      : grammar_(std::move(grammar)), automaton_(grammar_->current()), state_(automaton_->start()) {}

  std::unique_ptr<Constraint> clone() const override { return std::make_unique<GrammarConstraint>(*this); }

  void allowed(std::span<std::uint64_t> out) const override {
    const std::unique_lock lock = locked();
    copy_mask(automaton_->mask(state_), out);
  }

  bool accept(std::int32_t token) override {
    const Vocabulary& vocabulary = grammar_->vocabulary();
    if (token < 0 || static_cast<std::size_t>(token) >= vocabulary.size()) return false;
    const std::unique_lock lock = locked();
    Automaton& automaton = *automaton_;
    const std::string& bytes = vocabulary.bytes(token);
    if (bytes.empty()) {
      const Vocabulary::Controls& controls = vocabulary.controls();
      if (token != controls.end && token != controls.dsml) return false;
      const Automaton::Id next = automaton.step(state_, token == controls.end ? kEnd : kDsml);
      if (next == Automaton::kDead) return false;
      state_ = next;
      return true;
    }
    Automaton::Id state = state_;
    std::string name = name_, ended;
    for (const char byte : bytes) {
      const Automaton::Id next = automaton.step(state, static_cast<unsigned char>(byte));
      if (next == Automaton::kDead) return false;
      if (automaton.name_pending(next) && !automaton.name_pending(state)) ended = name;
      if (!automaton.in_name(next))
        name.clear();
      else if (automaton.in_name(state))
        name += byte;
      state = next;
    }
    if (automaton.name_pending(state)) state = automaton.settle(state, ended);
    state_ = state;
    name_ = std::move(name);
    return true;
  }

 private:
  // Locks the automaton; first moves on from one that is full.
  std::unique_lock<std::mutex> locked() const {
    for (;;) {
      std::unique_lock lock(automaton_->mutex);
      if (!automaton_->full()) return lock;
      const std::shared_ptr<Automaton> next = grammar_->successor(automaton_);
      if (next == automaton_) return lock;
      std::unique_lock next_lock(next->mutex);
      state_ = next->import(*automaton_, state_);
      lock.unlock();
      automaton_ = next;
      return next_lock;
    }
  }

  std::shared_ptr<Grammar> grammar_;
  mutable std::shared_ptr<Automaton> automaton_;
  mutable Automaton::Id state_;
  std::string name_;  // of the member that is being read, when the grammar does not list it
};

class AfterReasoning final : public Constraint {
 public:
  AfterReasoning(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Constraint> answer)
      : vocabulary_(std::move(vocabulary)), answer_(std::move(answer)) {}
  AfterReasoning(const AfterReasoning& other)
      : vocabulary_(other.vocabulary_),
        answer_(other.answer_),
        running_(other.running_ ? other.running_->clone() : nullptr) {}

  std::unique_ptr<Constraint> clone() const override { return std::make_unique<AfterReasoning>(*this); }

  void allowed(std::span<std::uint64_t> out) const override {
    if (running_) return running_->allowed(out);
    copy_mask(vocabulary_->all_text(), out);
    const auto end = static_cast<std::uint32_t>(vocabulary_->controls().end_thinking);
    out[end >> 6] |= std::uint64_t{1} << (end & 63);
  }

  bool accept(std::int32_t token) override {
    if (running_) return running_->accept(token);
    if (token == vocabulary_->controls().end_thinking) {
      running_ = answer_->clone();
      return true;
    }
    return token >= 0 && static_cast<std::size_t>(token) < vocabulary_->size() && !vocabulary_->bytes(token).empty();
  }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const Constraint> answer_;
  std::unique_ptr<Constraint> running_;  // behind the reasoning
};

// Rule 0: a value of the schema, then end of sequence.
void write_document(Machine& machine, const text::Json& schema) {
  const RuleId root = machine.rule();
  const StateId done = machine.state(), end = machine.state();
  SchemaRules rules(machine, schema);
  machine.call(machine.rule_at(root).start, rules.rule(schema, "#", Form::json), done);
  machine.edge(done, kEnd, kEnd, end);
  machine.edge(end, kEnd, kEnd, end);
  machine.epsilon(end, machine.rule_at(root).final);
}

}  // namespace

class Grammars::Cache {
 public:
  // The grammar of this key; made outside of the lock, so that a large one holds up nobody.
  std::shared_ptr<Grammar> get(const std::string& key, const std::function<std::shared_ptr<Grammar>()>& make) {
    if (auto known = find(key)) return known;
    std::shared_ptr<Grammar> made = make();
    const std::lock_guard lock(mutex_);
    entries_.emplace_front(key, made);
    if (entries_.size() > kEntries) entries_.pop_back();
    return made;
  }

 private:
  static constexpr std::size_t kEntries = 16;

  std::shared_ptr<Grammar> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto it =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
    if (it == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it);
    return it->second;
  }

  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Grammar>>> entries_;  // latest use first
};

Grammars::Grammars(std::shared_ptr<const Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)), cache_(std::make_unique<Cache>()) {}

Grammars::~Grammars() = default;

std::shared_ptr<const Constraint> Grammars::json_object() { return json_schema_text(R"({"type": "object"})"); }

std::shared_ptr<const Constraint> Grammars::json_schema_text(std::string_view schema) {
  check_text("the schema is", schema);
  std::optional<text::Json> parsed = text::Json::try_parse(schema);
  if (!parsed) fail(ErrorKind::invalid_argument, "the schema is not valid JSON");
  return json_schema(*parsed);
}

std::shared_ptr<const Constraint> Grammars::json_schema(const text::Json& schema) {
  const std::string key = schema.dump();
  check_text("the schema is", key);
  return std::make_shared<GrammarConstraint>(cache_->get(key, [&] {
    auto machine = std::make_shared<Machine>();
    write_document(*machine, schema);
    if (!machine->finish())
      fail(ErrorKind::invalid_argument,
           "no JSON text satisfies the schema: a value that it requires is impossible, or a reference repeats without "
           "end");
    return std::make_shared<Grammar>(std::move(machine), vocabulary_);
  }));
}

std::shared_ptr<const Constraint> Grammars::tool_calls(const std::vector<Tool>& tools, const ToolChoice& choice,
                                                       const text::Json* answer) {
  if (vocabulary_->controls().dsml < 0)
    fail(ErrorKind::unsupported, "this tokenizer has no control token {}; tool calls need it", text::v41::dsml);
  text::Json::Array all;
  for (const Tool& tool : tools) all.emplace_back(text::Json::Array{tool.name, tool.parameters, tool.enforce});
  const text::Json key(text::Json::Array{text::Json(all), static_cast<int>(choice.kind), choice.name, choice.parallel,
                                         choice.opened, answer ? *answer : text::Json()});
  const std::string text = key.dump();
  check_text("the list of tools is", text);
  return std::make_shared<GrammarConstraint>(cache_->get("tools " + text, [&] {
    auto machine = std::make_shared<Machine>();
    write_tool_calls(*machine, tools, choice, answer);
    if (!machine->finish())
      fail(ErrorKind::invalid_argument,
           "no call satisfies the schemas of the tools: a required parameter has no possible value");
    return std::make_shared<Grammar>(std::move(machine), vocabulary_);
  }));
}

std::shared_ptr<const Constraint> Grammars::after_reasoning(std::shared_ptr<const Constraint> answer) const {
  if (vocabulary_->controls().end_thinking < 0)
    fail(ErrorKind::unsupported, "this tokenizer has no control token {}; reasoning cannot end",
         text::v41::think_close);
  return std::make_shared<AfterReasoning>(vocabulary_, std::move(answer));
}

}  // namespace hadal::grammar
