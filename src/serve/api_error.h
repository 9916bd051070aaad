// What a client is told when its request fails, in the shape of the protocol that it speaks.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"
#include "serve/http.h"

namespace hadal::serve {

enum class Dialect { openai, anthropic };

// Endpoints below /v1/messages speak Anthropic's protocol, all others OpenAI's.
Dialect dialect_of(std::string_view path);

struct ApiError : std::exception {
  int status = 400;
  std::string message;
  std::string param;    // the field, as messages[2].content; empty when there is none
  std::string code;     // such as model_not_found; empty when there is none
  int retry_after = 0;  // seconds; 0: not said

  ApiError(int status_, std::string message_, std::string param_ = {}, std::string code_ = {})
      : status(status_), message(std::move(message_)), param(std::move(param_)), code(std::move(code_)) {}
  const char* what() const noexcept override { return message.c_str(); }
};

// The engine's and the text layer's errors, as a client's.
ApiError api_error_of(const Error& error);

// {"error": {...}} of OpenAI, or {"type": "error", ...} of Anthropic; one line without a line break.
std::string error_body(const ApiError& error, Dialect dialect, std::string_view request_id = {});
HttpResponse error_response(const ApiError& error, Dialect dialect, std::string_view request_id = {});

}  // namespace hadal::serve
