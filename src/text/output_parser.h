// What the model says, taken apart: reasoning, answer, tool calls.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"

namespace hadal::text {

struct OutputEvent {
  enum Kind {
    reasoning,       // text: more of the reasoning
    content,         // text: more of the answer
    call_begin,      // text: the function's name
    call_arguments,  // text: more of the arguments, as JSON text
    call_end,        // complete: whether the model finished the call
  } kind;
  int call = 0;  // which call, from 0
  std::string text;
  bool complete = true;
};

// A push parser for the output format of DeepSeek-V4.1 (and V4, V3.2: the tag names' spelling is accepted with and
// without the blank). Text goes in piece by piece, events come out as soon as they are certain. The sequence of
// events, with neighbours of the same kind joined, does not depend on how the text was split.
//
// Reasoning ends at </think>, or where a block of tool calls begins. Line breaks around </think> and before and after a
// block of calls are dropped, as the official parser does; all other text comes out unchanged.
//
// The joined arguments of a call are always one valid JSON object, also when the output is cut off or malformed:
// a parameter with string="true" becomes a JSON string of exactly its text; one with string="false" is passed on as
// it stands when it is JSON, and as a JSON string when it is not.
//
// Markup is never shown in part. Malformed markup:
// - closing tags may lack their '>', and the tags of parameter, invoke and calls that are still open are closed by
//   an outer closing tag, by the next invoke, or by the end;
// - an invoke without a surrounding block is a call;
// - closing tags that close nothing, a block opening at the very end, and BOS, EOS, role and placeholder tokens
//   inside text are dropped;
// - a block opening that no invoke follows, an unknown tag, and a tag without a name are ordinary text (the model
//   may explain the format);
// - text between calls is content.
// - A call whose only parameter is "arguments", holding a JSON object, is taken for that object, unless the tool has
//   a parameter of that name: models imitate it from histories that were rendered so.
class OutputParser {
 public:
  // Where the prompt left the model.
  struct Start {
    bool reasoning = false;  // inside <think>
    bool calls = false;      // inside an opened block of calls
    bool fresh = true;       // at the beginning of the reasoning or the answer: leading line breaks are dropped
  };
  struct Options {
    bool parse_calls = true;  // otherwise the markup of tool calls is text
    std::vector<Json> tools;  // the function objects of the request
  };
  // The state in which `prompt` ends; a prompt of any kind will do.
  static Start start_of(const Prompt& prompt);

  explicit OutputParser(Start start);
  OutputParser(Start start, const Options& options);

  // A piece from the detokenizer: tokens decide what is markup, text that spells a control token is text.
  void feed(const TokenPiece& piece, std::vector<OutputEvent>& out);
  // Text without token identities (a recorded output): spellings of control tokens count as the tokens. May be cut
  // anywhere, also inside a character.
  void feed_text(std::string_view text, std::vector<OutputEvent>& out);
  // The end of the output. Nothing may be fed afterwards.
  void finish(std::vector<OutputEvent>& out);

  bool ended() const { return state_ == State::ended; }  // EOS was seen, or finish() called
  int calls() const { return calls_; }                   // how many calls began
  bool in_reasoning() const { return state_ == State::reasoning; }

 private:
  enum class State { reasoning, content, block, invoke, text_value, json_value, ended };
  enum class Step { again, wait };
  struct Tag {
    enum Kind { unknown, unfinished, block, invoke, parameter } kind = unknown;
    bool closing = false;
    std::size_t length = 0;   // of the whole tag
    std::string_view header;  // between the name and the end
  };
  struct Attributes {
    bool named = false, json = false;
    std::string name;
  };

  void push_control(std::string_view name);
  void lex(bool final);
  void run(bool final);
  Step step(bool final);
  Step free_text(bool final);
  Step tag_in_text(const Tag& tag, bool final);
  Step tag_in_block(const Tag& tag);
  Step tag_in_invoke(const Tag& tag);
  Step block_opening(const Tag& tag, bool final);
  Step value(bool final);
  Tag read_tag(bool final) const;
  Attributes read_attributes(const Tag& tag) const;

  std::string_view rest() const { return std::string_view(symbols_).substr(at_); }
  void take(std::size_t n) { at_ += n; }
  void enter_text(State state);
  void literal(std::size_t n);
  void show(std::string_view text);
  void begin_call(std::string name);
  void begin_value(const Attributes& attributes);
  void add_value(std::string_view text);
  void end_value();
  void flush_wrapped();
  void end_call(bool complete);
  void end_output();
  void emit(OutputEvent::Kind kind, std::string text, bool complete = true);

  State state_;
  bool parse_calls_;
  std::set<std::string> own_arguments_;  // tools that have a parameter "arguments"
  bool at_start_;                        // line breaks (in a block: blanks too) are dropped until text comes
  bool said_anything_ = false;
  std::size_t breaks_ = 0;  // line breaks that show only if text follows
  int calls_ = 0;
  bool first_parameter_ = true;
  std::string json_;       // a value that cannot be passed on before it is whole
  bool may_wrap_ = false;  // of this call
  enum class Wrapped { no, as_text, as_json } wrapped_ = Wrapped::no;  // json_ holds the value of "arguments"

  Utf8Stream utf8_;
  std::string spelling_;  // text whose control tokens are not found yet
  // Text in which control tokens are single bytes that UTF-8 never uses; from at_ on not consumed.
  std::string symbols_;
  std::size_t at_ = 0;
  std::vector<OutputEvent>* out_ = nullptr;
};

}  // namespace hadal::text
