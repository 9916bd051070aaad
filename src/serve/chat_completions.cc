// POST /v1/chat/completions
#include <fmt/format.h>

#include "serve/chat_request.h"
#include "serve/openai.h"

namespace hadal::serve {
namespace {

using openai::ChunkStream;
using openai::StreamOptions;
using text::OutputEvent;

std::string logprobs_or_null(std::span<const GeneratedToken> tokens, bool wanted, const text::Tokenizer& tokenizer) {
  return wanted && !tokens.empty() ? openai::chat_logprobs(tokens, tokenizer) : "null";
}

class Whole final : public CollectingSink {
 public:
  Whole(Service& service, const Call& call, int n, bool logprobs)
      : CollectingSink(call.exchange, Dialect::openai, n, logprobs),
        envelope_(openai::envelope(new_id("chatcmpl-"), "chat.completion", service)),
        tokenizer_(service.tokenizer()),
        logprobs_(logprobs) {}

 private:
  std::string body(const std::vector<Answer>& answers, const Totals& totals) override {
    std::string out = envelope_ + ", \"choices\": [";
    for (size_t i = 0; i < answers.size(); ++i) {
      const Answer& a = answers[i];
      if (i) out += ", ";
      out += fmt::format("{{\"index\": {}, \"message\": {{\"role\": \"assistant\", \"content\": {}, \"refusal\": null",
                         i, a.content.empty() && !a.calls.empty() ? "null" : json_quoted(a.content));
      if (!a.reasoning.empty()) {
        const std::string reasoning = json_quoted(a.reasoning);
        out += fmt::format(", \"reasoning_content\": {}, \"reasoning\": {}", reasoning, reasoning);
      }
      if (!a.calls.empty()) out += ", \"tool_calls\": [";
      for (size_t c = 0; c < a.calls.size(); ++c)
        out += fmt::format(
            "{}{{\"id\": \"{}\", \"type\": \"function\", \"function\": {{\"name\": {}, \"arguments\": {}}}}}{}",
            c ? ", " : "", a.calls[c].id, json_quoted(a.calls[c].name), json_quoted(a.calls[c].arguments),
            c + 1 == a.calls.size() ? "]" : "");
      out += fmt::format("}}, \"logprobs\": {}, \"finish_reason\": {}}}",
                         logprobs_or_null(a.tokens, logprobs_, tokenizer_), openai::finish_reason(a.end));
    }
    return out + "], \"usage\": " + openai::usage(totals) + "}";
  }

  const std::string envelope_;
  const text::Tokenizer& tokenizer_;
  const bool logprobs_;
};

class Streamed final : public AnswerSink {
 public:
  Streamed(Service& service, const Call& call, StreamOptions options, int n, bool logprobs, int64_t prompt_tokens)
      : chunks_(call, openai::envelope(new_id("chatcmpl-"), "chat.completion.chunk", service), options),
        tokenizer_(service.tokenizer()),
        n_(n),
        logprobs_(logprobs),
        prompt_tokens_(prompt_tokens),
        waiting_(static_cast<size_t>(n)) {}

  void begin() override {
    chunks_.begin();
    chunks_.count(prompt_tokens_, 0);
    for (int i = 0; i < n_; ++i) send(i, R"("role": "assistant", "content": "")");
    chunks_.flush();
  }

  void add(int choice, std::span<const OutputEvent> events, std::span<const GeneratedToken> tokens) override {
    chunks_.count(prompt_tokens_, static_cast<int64_t>(tokens.size()));
    // Text may be held back: its tokens' log-probabilities then come with the next chunk.
    if (logprobs_) {
      auto& waiting = waiting_[static_cast<size_t>(choice)];
      waiting.insert(waiting.end(), tokens.begin(), tokens.end());
    }
    for (const OutputEvent& e : events) {
      switch (e.kind) {
        case OutputEvent::reasoning: {
          const std::string text = json_quoted(e.text);
          send(choice, fmt::format("\"reasoning_content\": {}, \"reasoning\": {}", text, text));
          break;
        }
        case OutputEvent::content: send(choice, "\"content\": " + json_quoted(e.text)); break;
        case OutputEvent::call_begin:
          send(choice, fmt::format("\"tool_calls\": [{{\"index\": {}, \"id\": \"{}\", \"type\": \"function\", "
                                   "\"function\": {{\"name\": {}, \"arguments\": \"\"}}}}]",
                                   e.call, new_id("call_"), json_quoted(e.text)));
          break;
        case OutputEvent::call_arguments:
          send(choice, fmt::format("\"tool_calls\": [{{\"index\": {}, \"function\": {{\"arguments\": {}}}}}]", e.call,
                                   json_quoted(e.text)));
          break;
        case OutputEvent::call_end: break;
      }
    }
    chunks_.flush();
  }

  void end_choice(int choice, const ChoiceEnd& end) override {
    send(choice, "", openai::finish_reason(end));
    chunks_.flush();
  }
  void finish(const Totals& totals) override { chunks_.finish(totals); }
  void fail(const ApiError& error) override { chunks_.fail(error); }

 private:
  void send(int choice, std::string_view delta, std::string_view finish = "null") {
    auto& waiting = waiting_[static_cast<size_t>(choice)];
    chunks_.send(fmt::format("{{\"index\": {}, \"delta\": {{{}}}, \"logprobs\": {}, \"finish_reason\": {}}}", choice,
                             delta, logprobs_or_null(waiting, logprobs_, tokenizer_), finish));
    waiting.clear();
  }

  ChunkStream chunks_;
  const text::Tokenizer& tokenizer_;
  const int n_;
  const bool logprobs_;
  const int64_t prompt_tokens_;
  std::vector<std::vector<GeneratedToken>> waiting_;
};

}  // namespace

void chat_completions(Service& service, Call& call) {
  const Fields body(call.body);
  service.check_model(body.string("model").value_or(""));
  Request request;
  TextOptions text;
  read_sampling(body, service, request, text);
  const bool logprobs = body.boolean("logprobs").value_or(false);
  const std::optional<int64_t> top = body.integer("top_logprobs", 0, 20);
  if (top.value_or(0) > 0 && !logprobs)
    throw ApiError(400, "top_logprobs needs logprobs = true", "top_logprobs", "invalid_value");
  if (logprobs) request.logprobs = static_cast<int>(top.value_or(0));
  refuse_unsupported(body, {"functions", "function_call", "audio", "web_search_options", "echo"});
  if (const text::Json::Array* modalities = body.array("modalities"))
    for (const text::Json& m : *modalities)
      if (m.as_string() == nullptr || *m.as_string() != "text") body.refuse("modalities", "[\"text\"]");
  const StreamOptions stream = openai::read_stream_options(body);
  render(service, read_chat(body), request, text);

  std::string_view field = "max_completion_tokens";
  constexpr int64_t kMost = int64_t{1} << 40;
  std::optional<int64_t> max_tokens = body.integer(field, 1, kMost);
  const std::optional<int64_t> old = body.integer("max_tokens", 1, kMost);
  if (!max_tokens && old) {
    max_tokens = old;
    field = "max_tokens";
  }
  fit_context(service, request, max_tokens, field);

  const int n = request.n;
  std::unique_ptr<AnswerSink> sink;
  if (stream.stream)
    sink = std::make_unique<Streamed>(service, call, stream, n, logprobs, static_cast<int64_t>(request.prompt.size()));
  else
    sink = std::make_unique<Whole>(service, call, n, logprobs);
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  service.generate(call, std::move(requests), std::move(text), std::move(sink));
}

}  // namespace hadal::serve
