#include "serve/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "serve/service.h"

namespace hadal::serve {
namespace {

std::chrono::steady_clock::duration duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Trace::Trace(const std::string& file) : file_(file), out_(std::fopen(file.c_str(), "w")) {
  if (out_ == nullptr) fail(ErrorKind::io, "cannot write the trace to {}", file);
  fmt::print(out_, "[\n");
  std::fflush(out_);
}

Trace::~Trace() {
  fmt::print(out_, R"({{"name": "process_name", "ph": "M", "pid": 1, "args": {{"name": "hadal serve"}}}})"
                   "\n]\n");
  std::fclose(out_);
}

std::vector<int> Trace::rows_for(const Request& request) {
  std::vector<int> rows;
  for (size_t row = 0; static_cast<int>(rows.size()) < request.choices; ++row) {
    if (row == row_ends_.size()) row_ends_.push_back(start_);
    if (row_ends_[row] > request.start) continue;
    row_ends_[row] = request.end;
    rows.push_back(static_cast<int>(row));
  }
  return rows;
}

double Trace::microseconds(Clock::time_point at) const {
  return std::chrono::duration<double, std::micro>(at - start_).count();
}

void Trace::event(std::string& out, const char* name, int row, Clock::time_point from, Clock::time_point to,
                  const std::string& arguments) const {
  fmt::format_to(std::back_inserter(out),
                 "{{\"name\": \"{}\", \"ph\": \"X\", \"pid\": 1, \"tid\": {}, \"ts\": {:.1f}, \"dur\": {:.1f}, "
                 "\"args\": {{{}}}}},\n",
                 name, row + 1, microseconds(from), std::chrono::duration<double, std::micro>(to - from).count(),
                 arguments);
}

void Trace::write(const Request& r) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  const std::vector<int> rows = rows_for(r);
  std::string out;
  const int row = rows.front();
  const std::string id = "\"request\": " + json_quoted(r.id);
  const Clock::time_point running = r.first_token_seconds > 0 ? r.start + duration(r.queue_seconds) : r.end,
                          first = r.first_token_seconds > 0 ? r.start + duration(r.first_token_seconds) : r.end;
  event(out, "request", row, r.start, r.end,
        fmt::format(
            "{}, \"endpoint\": {}, \"outcome\": \"{}\", \"prompt_tokens\": {}, \"cached_tokens\": {}, \"tokens\": "
            "{}, \"drafted\": {}, \"accepted\": {}",
            id, json_quoted(r.endpoint), r.outcome, r.prompt_tokens, r.cached_tokens, r.tokens, r.drafted, r.accepted));
  event(out, "queue", row, r.start, std::min(running, r.end), id);
  if (r.first_token_seconds > 0) {
    event(out, "prefill", row, running, first, id);
    event(out, "decode", row, first, std::max(first, r.end), id);
  }
  // A step's row of the picture begins where the tokens before it came.
  std::map<int, Clock::time_point> before;
  for (const Request::Tokens& step : r.steps) {
    const auto [it, fresh] = before.try_emplace(step.choice, step.at);
    if (!fresh)
      event(out, "step", rows[static_cast<size_t>(step.choice)], it->second, step.at,
            fmt::format("{}, \"choice\": {}, \"tokens\": {}", id, step.choice, step.count));
    it->second = step.at;
  }

  if (std::fwrite(out.data(), 1, out.size(), out_) == out.size() && std::fflush(out_) == 0) return;
  failed_ = true;
  log::warn("cannot write to {}: there will be no more of the trace", file_);
}

}  // namespace hadal::serve
