// What the server counts, as Prometheus text.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "hadal/engine.h"
#include "serve/http.h"

namespace hadal::serve {

// Bounds are upper ends, inclusive; one more bucket takes the rest. observe() is thread-safe and takes no lock.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value);
  // Lines of one metric in Prometheus' text format, without HELP and TYPE.
  void write(const std::string& name, const std::string& labels, std::string& out) const;

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<int64_t>> counts_;
  std::atomic<double> sum_{0};
};

struct Metrics {
  Histogram first_token{
      {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640}};
  Histogram inter_token{
      {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10}};
  Histogram per_output_token{
      {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10}};
  Histogram end_to_end{seconds()};
  Histogram queue{seconds()};
  Histogram prefill{seconds()};
  Histogram decode{seconds()};
  Histogram inference{seconds()};
  Histogram prompt_tokens{tokens()};
  Histogram generation_tokens{tokens()};

  enum Outcome { stop, length, tool_calls, abort, error, kOutcomes };
  std::array<std::atomic<int64_t>, kOutcomes> finished{};  // samples
  std::atomic<int64_t> cached_tokens{0}, recomputed_tokens{0}, prefix_queries{0};
  std::atomic<int64_t> refused{0};     // answered with a status from 400 to 499
  std::atomic<int64_t> over_quota{0};  // of these

  struct View {
    std::string model;
    std::string backend;
    int64_t context_length = 0;
    EngineStats engine;
    HttpServerStats http;
  };
  std::string text(const View& view) const;

 private:
  static std::vector<double> seconds() {
    return {0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920};
  }
  static std::vector<double> tokens() {
    return {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
  }
};

}  // namespace hadal::serve
