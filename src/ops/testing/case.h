// A case of an operator: inputs from a seed, a run on any backend, and the comparison with the reference. The same
// cases serve the tests, `hadal selftest`, sanitizer runs and the kernel benchmark.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/context.h"
#include "ops/testing/random.h"

namespace hadal::testing {

class Backend;
class Report;

// A tensor on the host; one of the vectors is used.
struct Output {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> f32;
  std::vector<uint8_t> u8;
  std::vector<int32_t> i32;

  const float* f(int64_t row) const { return f32.data() + row * cols; }
  const uint8_t* u(int64_t row) const { return u8.data() + row * cols; }
  const int32_t* i(int64_t row) const { return i32.data() + row * cols; }
};

class Outputs {
 public:
  Output& operator[](const std::string& name) { return map_[name]; }
  const Output& at(const std::string& name) const { return map_.at(name); }
  bool has(const std::string& name) const { return map_.contains(name); }

 private:
  std::map<std::string, Output> map_;
};

// An operator with its arguments on a backend.
struct Prepared {
  std::function<void()> run;
  std::function<void(Outputs&)> collect;
};

// What a run must do at least: for the benchmark's achieved rates.
struct Work {
  double flops = 0;
  double bytes = 0;
};

class OperatorCase {
 public:
  OperatorCase(std::string name, uint64_t seed) : name_(std::move(name)), seed_(derive_seed(seed, name_)) {}
  virtual ~OperatorCase() = default;
  OperatorCase(const OperatorCase&) = delete;
  OperatorCase& operator=(const OperatorCase&) = delete;

  const std::string& name() const { return name_; }
  // The stream of random inputs, from its beginning.
  Random random() const { return Random(seed_); }

  // Uploads inputs and poisons outputs.
  virtual Prepared prepare(Backend& backend) const = 0;
  virtual void compare(Numerics numerics, const Outputs& expected, const Outputs& actual, Report& report) const = 0;
  virtual Work work() const { return {}; }

 private:
  std::string name_;
  uint64_t seed_;
};

using Cases = std::vector<std::unique_ptr<OperatorCase>>;

}  // namespace hadal::testing
