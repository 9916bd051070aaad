#include "answer_writer.h"

#include <cstdio>

namespace hadal {
namespace {

text::OutputParser::Options parser_options(const std::vector<text::Json>& tools) {
  text::OutputParser::Options options;
  options.parse_calls = !tools.empty();
  options.tools = tools;
  return options;
}

}  // namespace

AnswerWriter::AnswerWriter(const text::Tokenizer& tokenizer, const text::OutputParser::Start& start,
                           const std::vector<text::Json>& tools, bool dim)
    : detokenizer_(tokenizer), parser_(start, parser_options(tools)), dim_(dim) {
  message_.role = text::Role::assistant;
}

void AnswerWriter::push(int32_t id) {
  std::vector<text::TokenPiece> pieces;
  detokenizer_.push(id, pieces);
  show(pieces);
  std::fflush(stdout);
}

text::ChatMessage AnswerWriter::finish(int calls_before) {
  std::vector<text::TokenPiece> pieces;
  detokenizer_.finish(pieces);
  show(pieces);
  std::vector<text::OutputEvent> events;
  parser_.finish(events);
  show(events);
  if (thinking_) close_reasoning();
  if (last_ != '\n' || (message_.content.empty() && message_.tool_calls.empty())) write("\n");
  std::fflush(stdout);
  for (text::ToolCall& call : message_.tool_calls) call.id = "call_" + std::to_string(++calls_before);
  return std::move(message_);
}

void AnswerWriter::show(const std::vector<text::TokenPiece>& pieces) {
  for (const text::TokenPiece& piece : pieces) {
    std::vector<text::OutputEvent> events;
    parser_.feed(piece, events);
    show(events);
  }
}

void AnswerWriter::show(const std::vector<text::OutputEvent>& events) {
  for (const text::OutputEvent& event : events) {
    if (event.kind == text::OutputEvent::reasoning) {
      if (!thinking_) write(dim_ ? "\033[2m<think>\n" : "<think>\n");
      thinking_ = true;
      message_.reasoning += event.text;
      write(event.text);
      continue;
    }
    if (thinking_) close_reasoning();
    switch (event.kind) {
      case text::OutputEvent::reasoning: break;
      case text::OutputEvent::content:
        message_.content += event.text;
        write(event.text);
        break;
      case text::OutputEvent::call_begin:
        message_.tool_calls.emplace_back().name = event.text;
        write(last_ == '\n' ? "[call] " : "\n[call] ");
        write(event.text + " ");
        break;
      case text::OutputEvent::call_arguments:
        message_.tool_calls.back().arguments += event.text;
        write(event.text);
        break;
      case text::OutputEvent::call_end: write(event.complete ? "\n" : " (cut off)\n"); break;
    }
  }
}

void AnswerWriter::close_reasoning() {
  thinking_ = false;
  write(dim_ ? "\n</think>\033[0m\n\n" : "\n</think>\n\n");
}

void AnswerWriter::write(std::string_view text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  last_ = text.back();
}

}  // namespace hadal
