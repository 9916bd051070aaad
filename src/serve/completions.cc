// POST /v1/completions: text in, text out, without a chat format.
#include <fmt/format.h>

#include "serve/openai.h"
#include "serve/request_fields.h"
#include "text/prompt_v41.h"

namespace hadal::serve {
namespace {

using openai::ChunkStream;
using openai::StreamOptions;
using text::Json;
using text::OutputEvent;
using text::TokenId;

// As the official tokenizer does, nothing is added to a raw prompt but BOS.
std::vector<int32_t> with_bos(std::vector<int32_t> ids, const text::Tokenizer& tokenizer) {
  const TokenId bos = tokenizer.control(text::v41::bos);
  if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
  return ids;
}

std::vector<int32_t> read_ids(const Json::Array& list, const std::string& path, int vocab) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<long long> id = list[i].as_integer();
    if (!id || *id < 0 || *id >= vocab)
      refuse_value(fmt::format("{}[{}]", path, i), &list[i], fmt::format("a token id from 0 to {}", vocab - 1));
    ids.push_back(static_cast<int32_t>(*id));
  }
  if (ids.empty()) throw ApiError(400, path + " is empty, expected at least one token", path, "invalid_value");
  return ids;
}

// A string, token ids, or a list of either.
std::vector<std::vector<int32_t>> read_prompts(const Fields& body, const Service& service) {
  constexpr const char* kExpected = "a string, a list of token ids, or a list of at most 64 of either";
  const text::Tokenizer& tokenizer = service.tokenizer();
  const int vocab = service.engine()->vocab_size();
  const Json* prompt = body.find("prompt");
  if (prompt == nullptr) body.refuse("prompt", kExpected);
  const bool add_bos = body.boolean("add_special_tokens").value_or(true);
  const auto of_text = [&](const std::string& text) {
    std::vector<int32_t> ids = tokenizer.encode_with_special(text);
    return add_bos ? with_bos(std::move(ids), tokenizer) : ids;
  };
  if (const std::string* text = prompt->as_string()) return {of_text(*text)};
  const Json::Array* list = prompt->as_array();
  if (list == nullptr || list->empty()) body.refuse("prompt", kExpected);
  if (list->front().as_number() != nullptr) return {read_ids(*list, "prompt", vocab)};
  if (list->size() > 64) body.refuse("prompt", kExpected);
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = fmt::format("prompt[{}]", i);
    if (const std::string* text = (*list)[i].as_string())
      prompts.push_back(of_text(*text));
    else if (const Json::Array* ids = (*list)[i].as_array())
      prompts.push_back(read_ids(*ids, path, vocab));
    else
      refuse_value(path, &(*list)[i], "a string or a list of token ids");
  }
  return prompts;
}

// Log-probabilities of a completion, as JSON text; text_offset goes on from `offset` (in characters).
std::string logprobs_of(std::span<const GeneratedToken> tokens, const text::Tokenizer& tokenizer, size_t& offset) {
  std::string names, values, top, offsets;
  const auto characters = [](const std::string& s) {
    return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const char* comma = i ? ", " : "";
    const std::string name = tokenizer.decode({tokens[i].token});
    names += comma + json_quoted(name);
    values += fmt::format("{}{}", comma, std::max(tokens[i].logprob, -9999.0f));
    offsets += fmt::format("{}{}", comma, offset);
    offset += characters(name);
    // Tokens of one spelling (halves of characters) share a key: the most likely one stays.
    std::map<std::string, float> best;
    for (const TokenLogprob& t : tokens[i].most_likely)
      best.try_emplace(tokenizer.decode({t.token}), std::max(t.logprob, -9999.0f));
    best.try_emplace(name, std::max(tokens[i].logprob, -9999.0f));
    top += comma + std::string("{");
    size_t k = 0;
    for (const auto& [token, value] : best) top += fmt::format("{}{}: {}", k++ ? ", " : "", json_quoted(token), value);
    top += "}";
  }
  return fmt::format("{{\"tokens\": [{}], \"token_logprobs\": [{}], \"top_logprobs\": [{}], \"text_offset\": [{}]}}",
                     names, values, top, offsets);
}

std::string stop_reason(const ChoiceEnd& end) { return end.stop ? json_quoted(*end.stop) : "null"; }

struct Shape {
  int choices;
  bool logprobs;
  std::vector<std::string> echo;  // by choice; text in front of the answer
  int64_t prompt_tokens;
};

class Whole final : public CollectingSink {
 public:
  Whole(Service& service, const Call& call, Shape shape)
      : CollectingSink(call.exchange, Dialect::openai, shape.choices, shape.logprobs),
        envelope_(openai::envelope(new_id("cmpl-"), "text_completion", service)),
        tokenizer_(service.tokenizer()),
        shape_(std::move(shape)) {}

  std::string body(const std::vector<Answer>& answers, const Totals& totals) override {
    std::string out = envelope_ + ", \"choices\": [";
    for (size_t i = 0; i < answers.size(); ++i) {
      size_t offset = 0;
      out +=
          fmt::format("{}{{\"index\": {}, \"text\": {}, \"logprobs\": {}, \"finish_reason\": {}, \"stop_reason\": {}}}",
                      i ? ", " : "", i, json_quoted(shape_.echo[i] + answers[i].content),
                      shape_.logprobs ? logprobs_of(answers[i].tokens, tokenizer_, offset) : "null",
                      openai::finish_reason(answers[i].end), stop_reason(answers[i].end));
    }
    return out + "], \"usage\": " + openai::usage(totals) + "}";
  }

 private:
  const std::string envelope_;
  const text::Tokenizer& tokenizer_;
  const Shape shape_;
};

class Streamed final : public AnswerSink {
 public:
  Streamed(Service& service, const Call& call, StreamOptions options, Shape shape)
      : chunks_(call, openai::envelope(new_id("cmpl-"), "text_completion", service), options),
        tokenizer_(service.tokenizer()),
        shape_(std::move(shape)),
        waiting_(static_cast<size_t>(shape_.choices)),
        offsets_(static_cast<size_t>(shape_.choices), 0) {}

  void begin() override {
    chunks_.begin();
    chunks_.count(shape_.prompt_tokens, 0);
    for (int i = 0; i < shape_.choices; ++i)
      if (const std::string& echo = shape_.echo[static_cast<size_t>(i)]; !echo.empty()) send(i, echo);
    chunks_.flush();
  }
  void add(int choice, std::span<const OutputEvent> events, std::span<const GeneratedToken> tokens) override {
    chunks_.count(shape_.prompt_tokens, static_cast<int64_t>(tokens.size()));
    if (shape_.logprobs) {
      auto& waiting = waiting_[static_cast<size_t>(choice)];
      waiting.insert(waiting.end(), tokens.begin(), tokens.end());
    }
    for (const OutputEvent& e : events)
      if (e.kind == OutputEvent::content) send(choice, e.text);
    chunks_.flush();
  }
  void end_choice(int choice, const ChoiceEnd& end) override {
    send(choice, "", openai::finish_reason(end), stop_reason(end));
    chunks_.flush();
  }
  void finish(const Totals& totals) override { chunks_.finish(totals); }
  void fail(const ApiError& error) override { chunks_.fail(error); }

 private:
  void send(int choice, std::string_view text, std::string_view finish = "null", std::string_view stop = "null") {
    auto& waiting = waiting_[static_cast<size_t>(choice)];
    const std::string logprobs =
        waiting.empty() ? "null" : logprobs_of(waiting, tokenizer_, offsets_[static_cast<size_t>(choice)]);
    chunks_.send(
        fmt::format("{{\"index\": {}, \"text\": {}, \"logprobs\": {}, \"finish_reason\": {}, \"stop_reason\": {}}}",
                    choice, json_quoted(text), logprobs, finish, stop));
    waiting.clear();
  }

  ChunkStream chunks_;
  const text::Tokenizer& tokenizer_;
  const Shape shape_;
  std::vector<std::vector<GeneratedToken>> waiting_;
  std::vector<size_t> offsets_;
};

}  // namespace

void completions(Service& service, Call& call) {
  const Fields body(call.body);
  service.check_model(body.string("model").value_or(""));
  Request request;
  TextOptions text;
  text.chat = false;
  read_sampling(body, service, request, text);
  // Some clients send false for none.
  const text::Json* logprobs = body.find("logprobs");
  if (logprobs != nullptr && !(logprobs->as_bool() != nullptr && !*logprobs->as_bool()))
    request.logprobs = static_cast<int>(*body.integer("logprobs", 0, 20));
  refuse_unsupported(body, {"suffix", "response_format"});
  const StreamOptions stream = openai::read_stream_options(body);
  const bool echo = body.boolean("echo").value_or(false);
  if (echo && request.logprobs >= 0)
    throw ApiError(400,
                   "echo together with logprobs is not supported: log-probabilities of the prompt are not computed",
                   "echo", "unsupported_parameter");
  const std::optional<int64_t> max_tokens = body.integer("max_tokens", echo ? 0 : 1, int64_t{1} << 40);

  Shape shape{0, request.logprobs >= 0, {}, 0};
  std::vector<Request> requests;
  for (std::vector<int32_t>& prompt : read_prompts(body, service)) {
    Request& r = requests.emplace_back(request);
    r.prompt = std::move(prompt);
    fit_context(service, r, max_tokens, "max_tokens");
    shape.choices += r.n;
    shape.prompt_tokens += static_cast<int64_t>(r.prompt.size());
    const size_t skip = !r.prompt.empty() && r.prompt.front() == service.tokenizer().control(text::v41::bos) ? 1 : 0;
    const std::string shown =
        echo ? service.tokenizer().decode({r.prompt.begin() + static_cast<std::ptrdiff_t>(skip), r.prompt.end()})
             : std::string();
    shape.echo.insert(shape.echo.end(), static_cast<size_t>(r.n), shown);
  }
  if (max_tokens == 0) {  // only the echo
    if (stream.stream)
      throw ApiError(400, "max_tokens is 0, expected at least 1 with stream = true", "max_tokens", "invalid_value");
    std::vector<Answer> empty(static_cast<size_t>(shape.choices));
    for (Answer& a : empty) a.end.reason = FinishReason::length;
    Totals totals;
    totals.prompt_tokens = shape.prompt_tokens;
    HttpResponse r;
    r.body = Whole(service, call, std::move(shape)).body(empty, totals);
    return call.exchange->respond(std::move(r));
  }
  std::unique_ptr<AnswerSink> sink;
  if (stream.stream)
    sink = std::make_unique<Streamed>(service, call, stream, std::move(shape));
  else
    sink = std::make_unique<Whole>(service, call, std::move(shape));
  service.generate(call, std::move(requests), std::move(text), std::move(sink));
}

}  // namespace hadal::serve
