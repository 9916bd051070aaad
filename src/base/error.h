// Errors: one exception type, thrown where bad input is found, caught where a user or a client can be told.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace hadal {

// What kind of failure this is decides the exit status of a command and the HTTP status of a request.
enum class ErrorKind {
  invalid_argument,  // the user's or client's request is wrong
  invalid_data,      // a checkpoint, tokenizer or other file is damaged or not supported
  io,                // the operating system refused a read or a write
  out_of_memory,     // a plan does not fit, with the numbers
  unsupported,       // understood, but this program cannot do it
  busy,              // too much waits already; try later
  internal,          // a bug in Hadal
};

// The message names the thing, both values where two disagree, and the remedy where there is one.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// fail(kind, "tensor {} has {} rows, expected {}", name, have, want): throws.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// A broken promise between parts of Hadal, kept in release builds: cheap where it stands.
#define HADAL_CHECK(condition)                                                                                 \
  do {                                                                                                         \
    if (!(condition))                                                                                          \
      ::hadal::fail(::hadal::ErrorKind::internal, "check failed: {} ({}:{})", #condition, __FILE__, __LINE__); \
  } while (false)

}  // namespace hadal
