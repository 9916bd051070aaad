// POST /tokenize and /detokenize
#include <fmt/format.h>

#include "serve/chat_request.h"
#include "serve/fields.h"
#include "serve/service.h"
#include "text/prompt_v41.h"

namespace hadal::serve {

using text::Json;

void tokenize(Service& service, Call& call) {
  const Fields body(call.body);
  service.check_model(body.string("model").value_or(""));
  const text::Tokenizer& tokenizer = service.tokenizer();
  std::vector<text::TokenId> ids;
  if (body.find("messages") != nullptr) {
    Request request;
    TextOptions text;
    render(service, read_chat(body), request, text);
    ids = std::move(request.prompt);
  } else {
    const std::string prompt = body.find("prompt") == nullptr && body.find("content") != nullptr
                                   ? body.required_string("content")
                                   : body.required_string("prompt");
    // As a raw prompt of /v1/completions: BOS in front, spelled control tokens are control tokens.
    ids = tokenizer.encode_with_special(prompt);
    const text::TokenId bos = tokenizer.control(text::v41::bos);
    if (body.boolean("add_special_tokens").value_or(true) && (ids.empty() || ids.front() != bos))
      ids.insert(ids.begin(), bos);
  }
  Json::Array list, strings;
  const bool with_strings = body.boolean("return_token_strs").value_or(false);
  for (const text::TokenId id : ids) {
    list.emplace_back(id);
    if (with_strings) strings.emplace_back(tokenizer.decode({id}));
  }
  Json::Object answer{{"count", ids.size()}, {"max_model_len", service.max_model_len()}, {"tokens", std::move(list)}};
  if (with_strings) answer.emplace_back("token_strs", std::move(strings));
  respond(call, std::move(answer));
}

void detokenize(Service& service, Call& call) {
  const Fields body(call.body);
  service.check_model(body.string("model").value_or(""));
  const Json::Array& list = body.required_array("tokens");
  const auto vocab = static_cast<long long>(service.tokenizer().vocab_size());
  std::vector<text::TokenId> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<long long> id = list[i].as_integer();
    if (!id || *id < 0 || *id >= vocab)
      refuse_value(fmt::format("tokens[{}]", i), &list[i], fmt::format("a token id from 0 to {}", vocab - 1));
    ids.push_back(static_cast<text::TokenId>(*id));
  }
  respond(call, Json::Object{{"prompt", service.tokenizer().decode(ids)}});
}

}  // namespace hadal::serve
