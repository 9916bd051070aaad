#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace hadal {

Progress::Progress(std::string label, uint64_t total, std::string unit)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) != 0),
      start_(Clock::now()),
      next_(start_ + std::chrono::milliseconds(terminal_ ? 500 : 5000)) {}

Progress::~Progress() {
  if (terminal_ && shown_ && !finished_) std::fputc('\n', stderr);
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Progress::advance(uint64_t amount) {
  done_ += amount;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(terminal_ ? 200 : 5000);
  show(false);
}

void Progress::finish() {
  finished_ = true;
  if (shown_) show(true);
}

void Progress::show(bool last) {
  shown_ = true;
  const double elapsed = std::max(seconds(), 1e-3);
  const double share = total_ > 0 ? std::min(1.0, double(done_) / double(total_)) : 1.0;
  const double rate = double(done_) / elapsed;
  const int left = rate > 0 ? int(std::min(double(total_ - std::min(done_, total_)) / rate, 9e6)) : 0;
  const std::string amount = unit_.empty() ? fmt::format("{:.2f} of {:.2f} GB  {:.0f} MB/s", double(done_) * 1e-9,
                                                         double(total_) * 1e-9, rate * 1e-6)
                                           : fmt::format("{} of {} {}  {:.1f} {}/s", done_, total_, unit_, rate, unit_);
  const std::string numbers = fmt::format("{:3.0f}%  {}  {}:{:02} left", 100 * share, amount, left / 60, left % 60);
  if (terminal_) {
    constexpr int width = 24;
    const int filled = int(share * width);
    const std::string bar = std::string(size_t(filled), '#') + std::string(size_t(width - filled), '.');
    std::fputs(fmt::format("\r{} [{}] {}\x1b[K{}", label_, bar, numbers, last ? "\n" : "").c_str(), stderr);
  } else {
    std::fputs(fmt::format("{}: {}\n", label_, numbers).c_str(), stderr);
  }
  std::fflush(stderr);
}

}  // namespace hadal
