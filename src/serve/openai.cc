#include "serve/openai.h"

#include <fmt/format.h>

namespace hadal::serve::openai {

StreamOptions read_stream_options(const Fields& body) {
  StreamOptions o;
  o.stream = body.boolean("stream").value_or(false);
  if (const std::optional<Fields> options = body.object("stream_options")) {
    if (!o.stream)
      throw ApiError(400, "stream_options is only allowed with stream = true", "stream_options", "invalid_value");
    o.usage = options->boolean("include_usage").value_or(false);
    o.continuous_usage = o.usage && options->boolean("continuous_usage_stats").value_or(false);
  }
  return o;
}

std::string_view finish_reason(const ChoiceEnd& end) {
  if (end.reason == FinishReason::length) return "\"length\"";
  return end.calls > 0 && !end.stop ? "\"tool_calls\"" : "\"stop\"";
}

std::string usage(const Totals& t) {
  return fmt::format(
      "{{\"prompt_tokens\": {}, \"completion_tokens\": {}, \"total_tokens\": {}, \"prompt_tokens_details\": "
      "{{\"cached_tokens\": {}}}, "
      "\"completion_tokens_details\": {{\"reasoning_tokens\": {}, \"accepted_prediction_tokens\": 0, "
      "\"rejected_prediction_tokens\": 0}}, "
      "\"prompt_cache_hit_tokens\": {}, \"prompt_cache_miss_tokens\": {}}}",
      t.prompt_tokens, t.tokens, t.prompt_tokens + t.tokens, t.cached_tokens, t.reasoning_tokens, t.cached_tokens,
      t.prompt_tokens - t.cached_tokens);
}

std::string chat_logprobs(std::span<const GeneratedToken> tokens, const text::Tokenizer& tokenizer) {
  const auto entry = [&](int32_t token, float logprob, std::string& out) {
    const std::string& bytes = tokenizer.token_bytes(token);
    out += fmt::format("{{\"token\": {}, \"logprob\": {}, \"bytes\": [", json_quoted(tokenizer.decode({token})),
                       std::max(logprob, -9999.0f));
    for (size_t i = 0; i < bytes.size(); ++i)
      out += fmt::format("{}{}", i ? ", " : "", static_cast<unsigned char>(bytes[i]));
    out += "]";
  };
  std::string out = "{\"content\": [";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i) out += ", ";
    entry(tokens[i].token, tokens[i].logprob, out);
    out += ", \"top_logprobs\": [";
    for (size_t k = 0; k < tokens[i].most_likely.size(); ++k) {
      if (k) out += ", ";
      entry(tokens[i].most_likely[k].token, tokens[i].most_likely[k].logprob, out);
      out += "}";
    }
    out += "]}";
  }
  return out + "], \"refusal\": null}";
}

std::string envelope(std::string_view id, std::string_view object, const Service& service) {
  return fmt::format(
      "{{\"id\": \"{}\", \"object\": \"{}\", \"created\": {}, \"model\": {}, \"system_fingerprint\": \"{}\"", id,
      object, unix_time(), json_quoted(service.options().names.front()), service.fingerprint());
}

void ChunkStream::send(std::string_view choice) {
  std::string chunk = envelope_;
  (chunk += ", \"choices\": [").append(choice) += ']';
  if (options_.usage) chunk += ", \"usage\": " + (options_.continuous_usage ? usage(so_far_) : "null");
  events_.send("", chunk + "}");
}

void ChunkStream::finish(const Totals& totals) {
  if (options_.usage) events_.send("", envelope_ + ", \"choices\": [], \"usage\": " + usage(totals) + "}");
  events_.send("", "[DONE]");
  events_.end();
}

void ChunkStream::fail(const ApiError& error) {
  events_.send("", error_body(error, Dialect::openai));
  events_.send("", "[DONE]");
  events_.end();
}

}  // namespace hadal::serve::openai
