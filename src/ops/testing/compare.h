// Holding a backend's outputs against the reference's.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/row_format.h"
#include "ops/testing/case.h"
#include "ops/testing/tolerance.h"

namespace hadal::testing {

// What came out of the comparison of one case.
class Report {
 public:
  // `ratio` is error / tolerance: up to 1 is fine. `where` makes the text, for the worst ones only.
  template <typename Where>
  void add(double ratio, Where&& where) {
    if (std::isnan(ratio)) ratio = std::numeric_limits<double>::infinity();
    if (ratio <= worst_) return;
    worst_ = ratio;
    where_ = where();
  }
  void fail(const std::string& message) { failures_.push_back(message); }

  void merge(const Report& other);

  bool failed() const { return !failures_.empty(); }
  bool passed() const { return failures_.empty() && worst_ <= 1; }
  double worst() const { return worst_; }
  std::string message() const;

 private:
  double worst_ = 0;
  std::string where_;
  std::vector<std::string> failures_;
};

// Root of the mean square.
double rms(const float* x, int64_t count);
// What an error in row r is measured by: the row's rms, or the whole tensor's where a row is short or zero.
double scale_of(const Output& expected, int64_t row);

void compare_values(Report& report, const std::string& name, const Output& expected, const Output& actual,
                    const Tolerance& tolerance);
// One row; returns the rms of its errors in units of the row's scale.
double compare_row(Report& report, const std::string& name, const Output& expected, const Output& actual, int64_t row,
                   const Tolerance& tolerance);
// The same numbers as rows of `cols`, so that each part of a row (a head, a residual copy) has its own scale.
Output reshape(Output output, int64_t cols);
// Equal to the last bit, NaN included; for copies and integers.
void compare_exactly(Report& report, const std::string& name, const Output& expected, const Output& actual);

// Packed rows: `row` must be a legal rounding of values within the tolerance of `unrounded`. The scale is checked
// against the block's largest value, and every code against the interval that rounds to it under the row's own scale.
void compare_packed_row(Report& report, const std::string& name, RowFormat format, int dim, const float* unrounded,
                        const uint8_t* row, const Tolerance& tolerance);

// The same for values that were unpacked: Q2 of 32 channels. Their scale is not known, and need not be: one of the
// scales around the largest value must explain all of them.
void compare_q2_block(Report& report, const std::string& name, const float* unrounded, const float* values,
                      const Tolerance& tolerance);

}  // namespace hadal::testing
