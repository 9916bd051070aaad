// From tokens to what a client sees: text, reasoning, tool calls, ended by a stop string.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/output_parser.h"
#include "text/stop_matcher.h"

namespace hadal::serve {

struct TextOptions {
  bool chat = true;  // take the output apart into reasoning, answer and calls; otherwise all of it is content
  text::OutputParser::Start start;
  text::OutputParser::Options parser;
  std::vector<std::string> stops;  // looked for in the answer, not in reasoning or calls
  bool keep_stop = false;          // leave the stop string in the answer
  bool one_call = false;           // the output ends with its first tool call
  bool skip_special = true;        // not chat: leave out BOS, EOS and other special tokens
};

// One sample's output. The joined text of the events does not depend on how many tokens come at a time.
class TextStream {
 public:
  TextStream(const text::Tokenizer& tokenizer, const TextOptions& options);

  // Appends what is now certain. False once a stop string (or the one call) ended the output: no more may come.
  bool push(text::TokenId id, std::vector<text::OutputEvent>& out);
  // The end of the output, unless a stop string came first.
  void finish(std::vector<text::OutputEvent>& out);

  // The stop string that was found; nullptr when none was.
  const std::string* stop() const { return stops_.stopped() ? &stops_.matched() : nullptr; }
  int64_t tokens() const { return tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  int calls() const { return one_call_ ? std::min(1, parser_.calls()) : parser_.calls(); }

 private:
  void show(const std::vector<text::TokenPiece>& pieces, std::vector<text::OutputEvent>& out);
  void show(std::vector<text::OutputEvent>& events, std::vector<text::OutputEvent>& out);
  void content(std::string text, std::vector<text::OutputEvent>& out) const;
  bool ended() const { return called_ || stops_.stopped(); }

  const text::Tokenizer& tokenizer_;
  const bool chat_, one_call_, skip_special_;
  text::Detokenizer detokenizer_;
  text::OutputParser parser_;
  text::StopMatcher stops_;
  bool called_ = false;  // the one call has ended
  int64_t tokens_ = 0, reasoning_tokens_ = 0;
};

}  // namespace hadal::serve
