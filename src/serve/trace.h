// What happened to each request, on a time line: Chrome's trace events, for ui.perfetto.dev or chrome://tracing.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

namespace hadal::serve {

// One line per event, in a JSON array that ends when the server does; the tools read it without its end too.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  // Replaces the file. Throws Error(io).
  explicit Trace(const std::string& file);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  struct Request {
    std::string id, endpoint, outcome;
    int choices = 1;
    Clock::time_point start, end;
    double queue_seconds = 0, first_token_seconds = 0;  // from the start; 0: never came to it
    int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0, drafted = 0, accepted = 0;
    struct Tokens {
      int choice;
      Clock::time_point at;
      int64_t count;  // that came together: one, and accepted drafts
    };
    std::vector<Tokens> steps;
  };
  void write(const Request& request);

 private:
  // A row for each choice, on which nothing overlaps.
  std::vector<int> rows_for(const Request& request);
  double microseconds(Clock::time_point at) const;
  void event(std::string& out, const char* name, int row, Clock::time_point from, Clock::time_point to,
             const std::string& arguments) const;

  const std::string file_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;  // guards what follows
  std::FILE* out_;
  bool failed_ = false;
  std::vector<Clock::time_point> row_ends_;  // of what is on each row of the picture
};

}  // namespace hadal::serve
