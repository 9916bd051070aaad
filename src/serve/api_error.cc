#include "serve/api_error.h"

#include "text/json.h"

namespace hadal::serve {
namespace {

using text::Json;

const char* openai_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

Dialect dialect_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? Dialect::anthropic : Dialect::openai;
}

ApiError api_error_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::busy: {
      ApiError e(429, error.what(), {}, "queue_full");
      e.retry_after = 1;
      return e;
    }
    case ErrorKind::out_of_memory: return {400, error.what(), {}, "context_length_exceeded"};
    case ErrorKind::unsupported: return {400, error.what(), {}, "unsupported"};
    case ErrorKind::invalid_argument:
    case ErrorKind::invalid_data: return {400, error.what()};
    default: return {500, error.what()};
  }
}

std::string error_body(const ApiError& error, Dialect dialect, std::string_view request_id) {
  const auto or_null = [](const std::string& s) { return s.empty() ? Json() : Json(s); };
  if (dialect == Dialect::anthropic) {
    Json::Object body{{"type", "error"},
                      {"error", Json::Object{{"type", anthropic_type(error.status)}, {"message", error.message}}}};
    if (!request_id.empty()) body.emplace_back("request_id", request_id);
    return Json(std::move(body)).dump();
  }
  return Json(Json::Object{{"error", Json::Object{{"message", error.message},
                                                  {"type", openai_type(error.status)},
                                                  {"param", or_null(error.param)},
                                                  {"code", or_null(error.code)}}}})
      .dump();
}

HttpResponse error_response(const ApiError& error, Dialect dialect, std::string_view request_id) {
  HttpResponse r;
  r.status = error.status;
  r.body = error_body(error, dialect, request_id);
  if (error.retry_after > 0) r.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  if (error.status == 401) r.headers.emplace_back("WWW-Authenticate", "Bearer");
  return r;
}

}  // namespace hadal::serve
