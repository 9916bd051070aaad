// Progress of a long job on standard error: a bar when it is a terminal, otherwise a line every few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace hadal {

class Progress {
 public:
  // `total` is in bytes, or in `unit`s when one is given. Nothing is shown during the first half second, so that short
  // jobs stay silent.
  Progress(std::string label, uint64_t total, std::string unit = "");
  // Ends the line when finish() has not been called, for instance because of an exception.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(uint64_t amount);
  void finish();
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  void show(bool last);

  std::string label_;
  std::string unit_;
  uint64_t total_;
  uint64_t done_ = 0;
  bool terminal_;
  bool shown_ = false;
  bool finished_ = false;
  Clock::time_point start_;
  Clock::time_point next_;
};

}  // namespace hadal
