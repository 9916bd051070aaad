#include "text/output_parser.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/prompt_v41.h"

namespace hadal::text {
namespace {

constexpr char kThinkOpen = '\xF8', kThinkClose = '\xF9', kDsml = '\xFA', kEnd = '\xFB';
constexpr char kNamed = '\xFC', kNameEnd = '\xFD';  // around the spelling of any other control token
constexpr std::string_view kSpecials = "\xF8\xF9\xFA\xFB\xFC<\n";

// Longest header of a tag, and longest run of blanks that keeps a block opening undecided: text is not held forever.
constexpr std::size_t kMaxHeader = 4096, kMaxBlanks = 64;

// Control tokens beside the four above that a stream of plain text may spell.
constexpr std::array<std::string_view, 14> kOtherNames = {
    v41::bos,       "<｜▁pad▁｜>",         v41::system,       v41::user,      v41::assistant, v41::latest_reminder,
    "<｜action｜>", "<｜query｜>",         "<｜authority｜>", "<｜domain｜>", "<｜title｜>",  "<｜read_url｜>",
    "<|EOT|>",      "<｜deepseek_image｜>"};

// Marks of places in an image: part of an answer.
constexpr std::array<std::string_view, 8> kShownNames = {"<｜ref｜>",     "<｜/ref｜>",    "<｜box｜>",
                                                         "<｜/box｜>",    "<｜point｜>",   "<｜/point｜>",
                                                         "<｜polygon｜>", "<｜/polygon｜>"};

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string spelled(std::string_view symbols) {
  std::string text;
  for (const char c : symbols) {
    switch (c) {
      case kThinkOpen: text += v41::think_open; break;
      case kThinkClose: text += v41::think_close; break;
      case kDsml: text += v41::dsml; break;
      case kEnd: text += v41::eos; break;
      case kNamed:
      case kNameEnd: break;
      default: text += c;
    }
  }
  return text;
}

bool has_non_finite(const Json& value) {
  if (const Json::Number* n = value.as_number()) return n->text.find_first_of("NI") != std::string::npos;
  if (const Json::Array* a = value.as_array()) return std::any_of(a->begin(), a->end(), has_non_finite);
  if (const Json::Object* o = value.as_object())
    return std::any_of(o->begin(), o->end(), [](const auto& member) { return has_non_finite(member.second); });
  return false;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// As the JSON of the wire: without Python's NaN and Infinity.
bool is_json(std::string_view text) {
  const auto parsed = Json::try_parse(text);
  return parsed && !has_non_finite(*parsed);
}

// A value that should be JSON: as it stands when it is, else as a string.
std::string json_or_string(const std::string& value) {
  const std::string_view core = trimmed(value);
  if (is_json(core)) return std::string(core);
  std::string text;
  append_json_string(value, text);
  return text;
}

}  // namespace

OutputParser::Start OutputParser::start_of(const Prompt& prompt) {
  const auto& parts = prompt.parts();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].control && parts[i].text == v41::assistant) begin = i + 1;
  Start start;
  std::string tail;
  for (std::size_t i = begin; i < parts.size(); ++i) {
    tail += parts[i].text;
    if (!parts[i].control || parts[i].text == v41::dsml) {
      start.fresh = false;
    } else {
      start.reasoning = parts[i].text == v41::think_open;
      start.fresh = true;
    }
  }
  start.calls = tail.ends_with("<｜DSML｜ calls>\n");
  return start;
}

OutputParser::OutputParser(Start start) : OutputParser(start, Options()) {}

OutputParser::OutputParser(Start start, const Options& options)
    : state_(start.calls && options.parse_calls ? State::block
             : start.reasoning                  ? State::reasoning
                                                : State::content),
      parse_calls_(options.parse_calls),
      at_start_(start.fresh || start.calls),
      said_anything_(!start.fresh) {
  for (const Json& tool : options.tools) {
    const Json* name = tool.find("name");
    const Json* parameters = tool.find("parameters");
    const Json* properties = parameters ? parameters->find("properties") : nullptr;
    if (name && name->as_string() && properties && properties->find("arguments"))
      own_arguments_.insert(*name->as_string());
  }
}

void OutputParser::push_control(std::string_view name) {
  if (name == v41::think_open) {
    symbols_ += kThinkOpen;
  } else if (name == v41::think_close) {
    symbols_ += kThinkClose;
  } else if (name == v41::dsml) {
    symbols_ += kDsml;
  } else if (name == v41::eos) {
    symbols_ += kEnd;
  } else {
    symbols_ += kNamed;
    symbols_ += name;
    symbols_ += kNameEnd;
  }
}

void OutputParser::feed(const TokenPiece& piece, std::vector<OutputEvent>& out) {
  out_ = &out;
  if (piece.control) {
    utf8_.finish(symbols_);
    push_control(piece.text);
  } else {
    utf8_.append(piece.text, symbols_);
  }
  run(false);
}

void OutputParser::feed_text(std::string_view text, std::vector<OutputEvent>& out) {
  out_ = &out;
  utf8_.append(text, spelling_);
  lex(false);
  run(false);
}

void OutputParser::finish(std::vector<OutputEvent>& out) {
  out_ = &out;
  utf8_.finish(spelling_);
  lex(true);
  run(true);
  if (state_ != State::ended) end_output();
}

// Moves text from spelling_ to symbols_, control tokens replaced; keeps what may still become one.
void OutputParser::lex(bool final) {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all(kOtherNames.begin(), kOtherNames.end());
    all.insert(all.end(), {v41::think_open, v41::think_close, v41::dsml, v41::eos});
    all.insert(all.end(), kShownNames.begin(), kShownNames.end());
    return all;
  }();
  std::string_view text = spelling_;
  while (!text.empty()) {
    const std::size_t plain = std::min(text.find_first_of("<\xEF"), text.size());
    symbols_ += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    std::string_view match;
    bool partial = false;
    for (const std::string_view name : names) {
      if (text.starts_with(name)) match = name;
      partial |= text.size() < name.size() && name.starts_with(text);
    }
    if (!match.empty()) {
      push_control(match);
      text.remove_prefix(match.size());
    } else if (partial && !final) {
      break;
    } else {
      symbols_ += text.front();
      text.remove_prefix(1);
    }
  }
  spelling_.erase(0, spelling_.size() - text.size());
}

void OutputParser::run(bool final) {
  while (state_ != State::ended && at_ < symbols_.size())
    if (step(final) == Step::wait) break;
  if (state_ == State::ended) at_ = symbols_.size();
  symbols_.erase(0, at_);
  at_ = 0;
}

OutputParser::Step OutputParser::step(bool final) {
  return state_ == State::text_value || state_ == State::json_value ? value(final) : free_text(final);
}

// Text outside of values: reasoning, answer, and whatever stands between the tags of calls.
OutputParser::Step OutputParser::free_text(bool final) {
  const std::string_view text = rest();
  const bool in_calls = state_ == State::block || state_ == State::invoke;
  // In a block, blanks and stray '>' between tags are layout.
  if (at_start_ && (text[0] == '\n' || (in_calls && (is_blank(text[0]) || text[0] == '>')))) {
    take(1);
    return Step::again;
  }
  switch (text[0]) {
    case '\n':
      ++breaks_;
      take(1);
      return Step::again;
    case kEnd: end_output(); return Step::again;
    case kThinkClose:
      take(1);
      if (state_ == State::reasoning) enter_text(State::content);
      return Step::again;
    case kThinkOpen:
      if (in_calls || (state_ == State::reasoning && at_start_)) {
        take(1);
      } else if (state_ == State::content && !said_anything_) {
        take(1);
        enter_text(State::reasoning);
      } else {
        literal(1);
      }
      return Step::again;
    case kNamed: {
      const std::size_t end = text.find(kNameEnd);
      const std::string_view name = text.substr(1, end - 1);
      const bool shown = std::find(kShownNames.begin(), kShownNames.end(), name) != kShownNames.end();
      if (shown || !(name.starts_with("<｜") || name.starts_with("<|")))
        literal(end + 1);
      else
        take(end + 1);
      return Step::again;
    }
    case '<': {
      if (!parse_calls_) break;
      const Tag tag = read_tag(final);
      if (tag.kind == Tag::unfinished) {
        if (!final) return Step::wait;
        // What is left is markup cut off, or, outside of a block, perhaps a plain '<'.
        if (!in_calls && text.find(kDsml) == std::string_view::npos)
          literal(text.size());
        else
          take(text.size());
        return Step::again;
      }
      if (tag.kind == Tag::unknown) break;
      if (state_ == State::block) return tag_in_block(tag);
      if (state_ == State::invoke) return tag_in_invoke(tag);
      return tag_in_text(tag, final);
    }
    default: break;
  }
  literal(std::min(text.find_first_of(kSpecials, 1), text.size()));
  return Step::again;
}

OutputParser::Step OutputParser::tag_in_text(const Tag& tag, bool final) {
  if (tag.closing) {
    take(tag.length);
    return Step::again;
  }
  if (tag.kind == Tag::block) return block_opening(tag, final);
  if (tag.kind == Tag::invoke && read_attributes(tag).named) {
    enter_text(State::block);  // the same tag is read again there
    return Step::again;
  }
  literal(tag.length);
  return Step::again;
}

// A block opening counts when an invoke or the closing tag follows.
OutputParser::Step OutputParser::block_opening(const Tag& tag, bool final) {
  std::string_view after = rest().substr(tag.length);
  const std::size_t blanks = std::min(after.find_first_not_of(" \n\t\r"), after.size());
  after.remove_prefix(blanks);
  if (blanks <= kMaxBlanks) {
    const std::size_t keep = at_;
    at_ = symbols_.size() - after.size();
    const Tag next = after.empty() ? Tag{Tag::unfinished, false, 0, {}} : read_tag(final);
    at_ = keep;
    if (next.kind == Tag::unfinished && !final) return Step::wait;
    const bool cut_off = next.kind == Tag::unfinished || after[0] == kEnd;
    if (cut_off || (next.kind == Tag::invoke && !next.closing) || (next.kind == Tag::block && next.closing)) {
      take(tag.length + blanks);
      enter_text(State::block);
      return Step::again;
    }
  }
  literal(tag.length);
  return Step::again;
}

OutputParser::Step OutputParser::tag_in_block(const Tag& tag) {
  const Attributes attributes = read_attributes(tag);
  if (!tag.closing && tag.kind == Tag::invoke && attributes.named) {
    begin_call(attributes.name);
  } else if (!tag.closing && tag.kind != Tag::block) {
    literal(tag.length);
    return Step::again;
  } else if (tag.closing && tag.kind == Tag::block) {
    enter_text(State::content);
  } else {
    enter_text(State::block);
  }
  take(tag.length);
  return Step::again;
}

OutputParser::Step OutputParser::tag_in_invoke(const Tag& tag) {
  if (tag.kind == Tag::parameter && !tag.closing) {
    const Attributes attributes = read_attributes(tag);
    if (!attributes.named) {
      literal(tag.length);
      return Step::again;
    }
    begin_value(attributes);
  } else if (tag.kind == Tag::invoke || (tag.kind == Tag::block && tag.closing)) {
    end_call(true);
    if (tag.kind == Tag::block || !tag.closing) return Step::again;  // the block goes on with the same tag
  } else {
    enter_text(State::invoke);
  }
  take(tag.length);
  return Step::again;
}

OutputParser::Step OutputParser::value(bool final) {
  const std::string_view text = rest();
  switch (text[0]) {
    case kEnd: end_output(); return Step::again;
    case kNamed: {
      const std::size_t end = text.find(kNameEnd);
      add_value(text.substr(1, end - 1));
      take(end + 1);
      return Step::again;
    }
    case '<': {
      const Tag tag = read_tag(final);
      if (tag.kind == Tag::unfinished) {
        if (!final) return Step::wait;
        if (text.find(kDsml) != std::string_view::npos) {
          take(text.size());
          return Step::again;
        }
        break;
      }
      if (tag.kind == Tag::unknown || !tag.closing) break;
      end_value();
      if (tag.kind == Tag::parameter) take(tag.length);
      return Step::again;
    }
    default: break;
  }
  const std::size_t end = std::min(text.find_first_of("\xFB\xFC<", 1), text.size());
  add_value(spelled(text.substr(0, end)));
  take(end);
  return Step::again;
}

// The tag at the current position, which holds '<'. Unfinished as long as more text could decide.
OutputParser::Tag OutputParser::read_tag(bool final) const {
  const std::string_view text = rest();
  const Tag unfinished{Tag::unfinished, false, 0, {}};
  Tag tag;
  if (text[0] != '<') return tag;
  std::size_t i = 1;
  if (i < text.size() && text[i] == '/') {
    tag.closing = true;
    ++i;
  }
  if (i == text.size()) return unfinished;
  if (text[i++] != kDsml) return tag;
  while (i < text.size() && i < kMaxBlanks && text[i] == ' ') ++i;
  const std::size_t name_begin = i;
  while (i < text.size() && ((text[i] >= 'a' && text[i] <= 'z') || text[i] == '_')) ++i;
  const std::string_view name = text.substr(name_begin, i - name_begin);
  using Entry = std::pair<std::string_view, Tag::Kind>;
  for (const auto& [word, kind] :
       {Entry{"calls", Tag::block}, Entry{"tool_calls", Tag::block}, Entry{"function_calls", Tag::block},
        Entry{"invoke", Tag::invoke}, Entry{"parameter", Tag::parameter}}) {
    if (i == text.size() && word.starts_with(name) && !(final && word == name)) return unfinished;
    if (word == name) tag.kind = kind;
  }
  if (tag.kind == Tag::unknown) return tag;
  const std::size_t header_begin = i;
  if (tag.closing) {
    while (i < text.size() && text[i] == ' ') ++i;
    if (i == text.size() && !final) return unfinished;
    // A missing '>' leaves the blanks to what follows.
    tag.length = i < text.size() && text[i] == '>' ? i + 1 : header_begin;
    return tag;
  }
  // An opening tag ends at a '>' outside of quotes or behind a quote, or at the end of the line.
  std::size_t quotes = 0;
  char before = ' ';
  for (; i < text.size() && i < kMaxHeader; ++i) {
    const char c = text[i];
    if (c == '\n' || (c == '>' && (quotes % 2 == 0 || before == '"'))) {
      tag.header = text.substr(header_begin, i - header_begin);
      tag.length = i + 1;
      return tag;
    }
    if (c == kEnd) break;
    quotes += c == '"';
    if (c != ' ') before = c;
  }
  if (i == text.size()) return unfinished;
  return Tag{};
}

OutputParser::Attributes OutputParser::read_attributes(const Tag& tag) const {
  Attributes result;
  const std::string_view header = tag.header;
  const std::size_t kind = header.rfind("string=");
  if (kind != std::string_view::npos) {
    std::string_view value = header.substr(kind + 7);
    if (value.starts_with('"')) value.remove_prefix(1);
    result.json = value.starts_with("false");
  }
  const std::size_t name = header.find("name=\"");
  if (name == std::string_view::npos) return result;
  std::string_view value = header.substr(name + 6);
  if (kind != std::string_view::npos && kind > name) value = header.substr(name + 6, kind - name - 6);
  value = value.substr(0, value.rfind('"'));  // all of it when the closing quote is missing
  result.name = spelled(value);
  result.named = !result.name.empty();
  return result;
}

// Starts a stretch of text; blanks that lead to it are not shown.
void OutputParser::enter_text(State state) {
  state_ = state;
  at_start_ = true;
  breaks_ = 0;
}

void OutputParser::literal(std::size_t n) {
  show(spelled(rest().substr(0, n)));
  take(n);
}

void OutputParser::show(std::string_view text) {
  if (text.empty()) return;
  std::string shown(breaks_, '\n');
  shown += text;
  breaks_ = 0;
  at_start_ = false;
  said_anything_ = true;
  emit(state_ == State::reasoning ? OutputEvent::reasoning : OutputEvent::content, std::move(shown));
}

void OutputParser::begin_call(std::string name) {
  enter_text(State::invoke);
  said_anything_ = true;
  first_parameter_ = true;
  may_wrap_ = own_arguments_.count(name) == 0;
  ++calls_;
  emit(OutputEvent::call_begin, std::move(name));
}

void OutputParser::begin_value(const Attributes& attributes) {
  if (wrapped_ != Wrapped::no) flush_wrapped();
  json_.clear();
  if (first_parameter_ && may_wrap_ && attributes.name == "arguments") {
    enter_text(State::json_value);
    wrapped_ = attributes.json ? Wrapped::as_json : Wrapped::as_text;
    return;
  }
  enter_text(attributes.json ? State::json_value : State::text_value);
  std::string text = first_parameter_ ? "{" : ", ";
  first_parameter_ = false;
  append_json_string(attributes.name, text);
  text += attributes.json ? ": " : ": \"";
  emit(OutputEvent::call_arguments, std::move(text));
}

void OutputParser::add_value(std::string_view text) {
  if (state_ == State::json_value) {
    json_ += text;
    return;
  }
  std::string escaped;
  append_json_escaped(text, escaped);
  emit(OutputEvent::call_arguments, std::move(escaped));
}

void OutputParser::end_value() {
  if (state_ == State::text_value)
    emit(OutputEvent::call_arguments, "\"");
  else if (wrapped_ == Wrapped::no)
    emit(OutputEvent::call_arguments, json_or_string(json_));
  enter_text(State::invoke);
}

// "arguments" turned out to be a parameter like others.
void OutputParser::flush_wrapped() {
  std::string text = "{\"arguments\": ";
  if (wrapped_ == Wrapped::as_json)
    text += json_or_string(json_);
  else
    append_json_string(json_, text);
  wrapped_ = Wrapped::no;
  first_parameter_ = false;
  emit(OutputEvent::call_arguments, std::move(text));
}

void OutputParser::end_call(bool complete) {
  const bool object = wrapped_ != Wrapped::no && trimmed(json_).starts_with('{') && is_json(trimmed(json_));
  if (wrapped_ != Wrapped::no && !object) flush_wrapped();
  emit(OutputEvent::call_arguments, object ? std::string(trimmed(json_)) : first_parameter_ ? "{}" : "}");
  wrapped_ = Wrapped::no;
  emit(OutputEvent::call_end, {}, complete);
  enter_text(State::block);
}

void OutputParser::end_output() {
  if (state_ == State::text_value || state_ == State::json_value) end_value();
  if (state_ == State::invoke) end_call(false);
  if ((state_ == State::reasoning || state_ == State::content) && breaks_ > 0)
    emit(state_ == State::reasoning ? OutputEvent::reasoning : OutputEvent::content, std::string(breaks_, '\n'));
  state_ = State::ended;
}

void OutputParser::emit(OutputEvent::Kind kind, std::string text, bool complete) {
  const bool of_call = kind != OutputEvent::reasoning && kind != OutputEvent::content;
  const int call = of_call ? calls_ - 1 : 0;
  const bool joins = kind != OutputEvent::call_begin && kind != OutputEvent::call_end;
  if (joins && text.empty()) return;
  if (joins && !out_->empty() && out_->back().kind == kind && out_->back().call == call)
    out_->back().text += text;
  else
    out_->push_back({kind, call, std::move(text), complete});
}

}  // namespace hadal::text
