#include "serve/text_stream.h"

namespace hadal::serve {

using text::OutputEvent;

TextStream::TextStream(const text::Tokenizer& tokenizer, const TextOptions& options)
    : tokenizer_(tokenizer),
      chat_(options.chat),
      one_call_(options.one_call),
      skip_special_(options.skip_special),
      detokenizer_(tokenizer),
      parser_(options.start, options.parser),
      stops_(options.stops, options.keep_stop) {}

bool TextStream::push(text::TokenId id, std::vector<OutputEvent>& out) {
  ++tokens_;
  if (chat_ && parser_.in_reasoning()) ++reasoning_tokens_;
  if (!chat_ && skip_special_ && tokenizer_.is_special(id)) return true;
  std::vector<text::TokenPiece> pieces;
  detokenizer_.push(id, pieces);
  show(pieces, out);
  return !ended();
}

void TextStream::finish(std::vector<OutputEvent>& out) {
  if (ended()) return;
  std::vector<text::TokenPiece> pieces;
  detokenizer_.finish(pieces);
  show(pieces, out);
  if (chat_ && !ended()) {
    std::vector<OutputEvent> events;
    parser_.finish(events);
    show(events, out);
  }
  content(stops_.finish(), out);
}

void TextStream::show(const std::vector<text::TokenPiece>& pieces, std::vector<OutputEvent>& out) {
  for (const text::TokenPiece& piece : pieces) {
    if (ended()) return;
    if (!chat_) {
      content(stops_.push(piece.text), out);
      continue;
    }
    std::vector<OutputEvent> events;
    parser_.feed(piece, events);
    show(events, out);
  }
}

void TextStream::show(std::vector<OutputEvent>& events, std::vector<OutputEvent>& out) {
  for (OutputEvent& event : events) {
    if (ended()) return;
    if (event.kind == OutputEvent::content) {
      content(stops_.push(event.text), out);
      continue;
    }
    // A stop string does not reach across a call: what was held back belongs before it.
    content(stops_.finish(), out);
    called_ = one_call_ && event.kind == OutputEvent::call_end;
    out.push_back(std::move(event));
  }
}

void TextStream::content(std::string text, std::vector<OutputEvent>& out) const {
  if (text.empty()) return;
  if (!out.empty() && out.back().kind == OutputEvent::content) {
    out.back().text += text;
    return;
  }
  out.push_back({OutputEvent::content, 0, std::move(text), true});
}

}  // namespace hadal::serve
