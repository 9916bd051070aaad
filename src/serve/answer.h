// One choice of an answer, collected.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "serve/generation.h"
#include "text/chat.h"

namespace hadal::serve {

struct Answer {
  std::string reasoning, content;
  std::vector<text::ToolCall> calls;
  std::vector<GeneratedToken> tokens;  // only when log-probabilities were asked for
  ChoiceEnd end;

  // `keep_tokens`: with log-probabilities.
  void add(std::span<const text::OutputEvent> events, std::span<const GeneratedToken> generated, bool keep_tokens);
};

// Collects every choice; `done` then makes the answer of them. For what is not streamed.
class CollectingSink : public AnswerSink {
 public:
  CollectingSink(std::shared_ptr<Exchange> exchange, Dialect dialect, int choices, bool keep_tokens)
      : exchange_(std::move(exchange)),
        dialect_(dialect),
        keep_tokens_(keep_tokens),
        answers_(static_cast<size_t>(choices)) {}
  void add(int choice, std::span<const text::OutputEvent> events, std::span<const GeneratedToken> tokens) override {
    answers_[static_cast<size_t>(choice)].add(events, tokens, keep_tokens_);
  }
  void end_choice(int choice, const ChoiceEnd& end) override { answers_[static_cast<size_t>(choice)].end = end; }
  void finish(const Totals& totals) override;
  void fail(const ApiError& error) override { exchange_->respond(error_response(error, dialect_)); }

 protected:
  // The body of the answer.
  virtual std::string body(const std::vector<Answer>& answers, const Totals& totals) = 0;

 private:
  const std::shared_ptr<Exchange> exchange_;
  const Dialect dialect_;
  const bool keep_tokens_;
  std::vector<Answer> answers_;
};

// Server-sent events.
class EventStream {
 public:
  explicit EventStream(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  void begin();
  // One event; `name` may be empty. What is sent until flush() goes out together.
  void send(std::string_view name, std::string_view data);
  void flush() { exchange_->write(std::exchange(out_, {})); }
  void end() {
    flush();
    exchange_->end();
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
  std::string out_;
};

}  // namespace hadal::serve
