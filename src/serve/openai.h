// What OpenAI's chat and completion endpoints share.
#pragma once

#include <string>
#include <string_view>

#include "serve/answer.h"
#include "serve/fields.h"
#include "serve/service.h"

namespace hadal::serve::openai {

struct StreamOptions {
  bool stream = false;
  bool usage = false;             // a last chunk with usage and no choices
  bool continuous_usage = false;  // usage in every chunk
};
StreamOptions read_stream_options(const Fields& body);

// "stop", "length" or "tool_calls", as JSON text.
std::string_view finish_reason(const ChoiceEnd& end);
// The usage object, as JSON text.
std::string usage(const Totals& totals);
// Of a chat: {"content": [...]}, as JSON text.
std::string chat_logprobs(std::span<const GeneratedToken> tokens, const text::Tokenizer& tokenizer);

// The beginning of every object of one answer: {"id": ..., "object": ..., "created": ..., "model": ..., "system_fingerprint": ...
std::string envelope(std::string_view id, std::string_view object, const Service& service);

// Chunks of a stream: the envelope, one choice, and perhaps usage.
class ChunkStream {
 public:
  ChunkStream(const Call& call, std::string envelope, StreamOptions options)
      : events_(call.exchange), envelope_(std::move(envelope)), options_(options) {}
  void begin() { events_.begin(); }
  // `choice` is a choice object as JSON text.
  void send(std::string_view choice);
  void flush() { events_.flush(); }
  void finish(const Totals& totals);
  void fail(const ApiError& error);
  // For continuous usage.
  void count(int64_t prompt_tokens, int64_t tokens) {
    so_far_.prompt_tokens = prompt_tokens;
    so_far_.tokens += tokens;
  }

 private:
  EventStream events_;
  const std::string envelope_;
  const StreamOptions options_;
  Totals so_far_;
};

}  // namespace hadal::serve::openai
