// Shows an answer while it comes, and keeps it as a message.
#pragma once

#include <string>
#include <vector>

#include "text/chat.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"

namespace hadal {

class AnswerWriter {
 public:
  // Without tools, markup of calls is text that the model explains. `dim`: reasoning is dimmed, for a terminal.
  AnswerWriter(const text::Tokenizer& tokenizer, const text::OutputParser::Start& start,
               const std::vector<text::Json>& tools, bool dim);

  void push(int32_t id);
  // The whole message. Its calls get the ids call_N, N from `calls_before` + 1.
  text::ChatMessage finish(int calls_before);

 private:
  void show(const std::vector<text::TokenPiece>& pieces);
  void show(const std::vector<text::OutputEvent>& events);
  void write(std::string_view text);
  void close_reasoning();

  text::Detokenizer detokenizer_;
  text::OutputParser parser_;
  text::ChatMessage message_;
  bool dim_, thinking_ = false;
  char last_ = '\n';  // written character
};

}  // namespace hadal
