#include "ops/testing/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/dtype.h"

namespace hadal::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool same_shape(Report& report, const std::string& name, const Output& expected, const Output& actual) {
  if (expected.rows == actual.rows && expected.cols == actual.cols) return true;
  report.fail(
      fmt::format("{}: [{}, {}], expected [{}, {}]", name, actual.rows, actual.cols, expected.rows, expected.cols));
  return false;
}

double ratio_of(double error, double tolerance) {
  if (error == 0) return 0;
  return error <= tolerance || tolerance > 0 ? error / tolerance : kInfinity;  // a NaN stays a NaN
}

// The interval of x / scale that rounds to a code, without its sign.
struct Cell {
  double low, high;
};

Cell e4m3_cell(uint8_t magnitude) {
  const auto value = [](int code) { return static_cast<double>(from_e4m3(static_cast<uint8_t>(code))); };
  return {magnitude == 0 ? 0 : (value(magnitude - 1) + value(magnitude)) / 2,
          magnitude == 0x7e ? kInfinity : (value(magnitude) + value(magnitude + 1)) / 2};
}

Cell e2m1_cell(uint8_t magnitude) {
  const auto value = [](int code) { return static_cast<double>(from_e2m1(static_cast<uint8_t>(code))); };
  return {magnitude == 0 ? 0 : (value(magnitude - 1) + value(magnitude)) / 2,
          magnitude == 7 ? kInfinity : (value(magnitude) + value(magnitude + 1)) / 2};
}

double distance(double x, Cell cell) { return std::max({0.0, cell.low - x, x - cell.high}); }

// The largest values of a block that lead to this scale byte. The floors of Q1, Q2 and Q3 reach down to 0.
Cell scale_cell(RowFormat format, uint8_t byte) {
  switch (format) {
    case RowFormat::fp8_ue8m0_32: {
      const double s = from_ue8m0(byte);
      return {448 * s / 2 < 1e-4 ? 0 : 448 * s / 2, 448 * s};
    }
    case RowFormat::fp4_ue8m0_32: {
      const double s = from_ue8m0(byte);
      return {byte <= 1 ? 0 : 6 * s / 2, 6 * s};
    }
    case RowFormat::fp4_e4m3_16: {
      const Cell cell = e4m3_cell(byte);
      return {byte <= 1 ? 0 : 6 * cell.low, 6 * cell.high};
    }
  }
  return {kInfinity, 0};
}

}  // namespace

void Report::merge(const Report& other) {
  failures_.insert(failures_.end(), other.failures_.begin(), other.failures_.end());
  add(other.worst_, [&] { return other.where_; });
}

std::string Report::message() const {
  std::string text;
  if (worst_ > 0) text = fmt::format("error / tolerance {:.3g} at {}", worst_, where_);
  for (size_t i = 0; i < std::min<size_t>(failures_.size(), 3); ++i) text += (text.empty() ? "" : "; ") + failures_[i];
  if (failures_.size() > 3) text += fmt::format("; and {} more", failures_.size() - 3);
  return text;
}

double rms(const float* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

double scale_of(const Output& expected, int64_t row) {
  const double of_row = expected.cols >= 32 ? rms(expected.f(row), expected.cols) : 0;
  return of_row > 0 ? of_row : rms(expected.f32.data(), expected.rows * expected.cols);
}

double compare_row(Report& report, const std::string& name, const Output& expected, const Output& actual, int64_t row,
                   const Tolerance& tolerance) {
  const double scale = scale_of(expected, row);
  double squares = 0;
  for (int64_t c = 0; c < expected.cols; ++c) {
    const double e = expected.f(row)[c], a = actual.f(row)[c];
    if (e == a) continue;  // infinities too
    const double error = std::fabs(a - e);
    squares += error * error;
    report.add(ratio_of(error, tolerance.of_value * std::fabs(e) + tolerance.of_scale * scale),
               [&] { return fmt::format("{}[{}, {}] = {:.9g}, expected {:.9g}", name, row, c, a, e); });
  }
  return squares == 0 ? 0 : std::sqrt(squares / static_cast<double>(expected.cols)) / scale;
}

void compare_values(Report& report, const std::string& name, const Output& expected, const Output& actual,
                    const Tolerance& tolerance) {
  if (!same_shape(report, name, expected, actual)) return;
  std::vector<double> row_errors;
  for (int64_t r = 0; r < expected.rows; ++r)
    row_errors.push_back(compare_row(report, name, expected, actual, r, tolerance));
  // Short rows say little about a deviation.
  if (expected.rows * expected.cols < 64 || row_errors.empty()) return;
  std::sort(row_errors.begin(), row_errors.end());
  const double median = row_errors[row_errors.size() / 2];
  report.add(ratio_of(median, 2 * tolerance.deviation),
             [&] { return fmt::format("{}: deviation {:.3g} of the median row", name, median); });
}

Output reshape(Output output, int64_t cols) {
  output.rows = output.rows * output.cols / cols;
  output.cols = cols;
  return output;
}

void compare_exactly(Report& report, const std::string& name, const Output& expected, const Output& actual) {
  if (!same_shape(report, name, expected, actual)) return;
  const auto compare = [&](const auto& want, const auto& have) {
    for (size_t i = 0; i < want.size(); ++i) {
      // Equal to the bit: -0 is not 0, and a NaN is itself.
      // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
      if (std::memcmp(&want[i], &have[i], sizeof(want[i])) == 0) continue;
      report.fail(
          fmt::format("{}[{}, {}] = {}, expected {}", name, i / expected.cols, i % expected.cols, have[i], want[i]));
      return;
    }
  };
  compare(expected.f32, actual.f32);
  compare(expected.u8, actual.u8);
  compare(expected.i32, actual.i32);
}

void compare_packed_row(Report& report, const std::string& name, RowFormat format, int dim, const float* unrounded,
                        const uint8_t* row, const Tolerance& tolerance) {
  const bool fp8 = format == RowFormat::fp8_ue8m0_32;
  const bool scale_is_e4m3 = format == RowFormat::fp4_e4m3_16;
  const int block = scale_is_e4m3 ? 16 : 32;
  const uint8_t* scales = row + (fp8 ? dim : dim / 2);
  const double row_scale = rms(unrounded, dim);
  const auto allowed = [&](double x) { return tolerance.of_value * std::fabs(x) + tolerance.of_scale * row_scale; };

  for (int b = 0; b < dim / block; ++b) {
    double top = 0;
    for (int i = b * block; i < (b + 1) * block; ++i) top = std::max(top, std::fabs(static_cast<double>(unrounded[i])));
    const uint8_t byte = scales[b];
    const double scale = scale_is_e4m3 ? from_e4m3(byte) : from_ue8m0(byte);
    if (!(scale > 0)) {
      report.fail(fmt::format("{}: scale byte {:#04x} of block {}", name, byte, b));
      continue;
    }
    report.add(ratio_of(distance(top, scale_cell(format, byte)), allowed(top)),
               [&] { return fmt::format("{}: scale {} of block {} for a top value {:.9g}", name, scale, b, top); });

    for (int i = b * block; i < (b + 1) * block; ++i) {
      const auto code = static_cast<uint8_t>(fp8 ? row[i] : i % 2 == 0 ? row[i / 2] & 15 : row[i / 2] >> 4);
      const uint8_t sign_bit = fp8 ? 0x80 : 8;
      const auto magnitude = static_cast<uint8_t>(code & (sign_bit - 1));
      if (fp8 && magnitude == 0x7f) {
        report.fail(fmt::format("{}[{}] is NaN", name, i));
        continue;
      }
      const Cell cell = fp8 ? e4m3_cell(magnitude) : e2m1_cell(magnitude);
      const double x = (code & sign_bit) != 0 ? -unrounded[i] : unrounded[i];
      report.add(ratio_of(distance(x, {cell.low * scale, cell.high * scale}), allowed(x)), [&] {
        return fmt::format("{}[{}]: code {:#04x} under scale {} for {:.9g}", name, i, code, scale, unrounded[i]);
      });
    }
  }
}

void compare_q2_block(Report& report, const std::string& name, const float* unrounded, const float* values,
                      const Tolerance& tolerance) {
  const RowFormat format = RowFormat::fp4_ue8m0_32;
  std::vector<uint8_t> row(row_bytes(format, 32));
  pack_row(format, unrounded, 32, row.data());
  const int middle = row[16];
  Report best;
  best.fail(fmt::format("{}: not on the grid of Q2", name));
  for (int byte = std::max(middle - 1, 1); byte <= middle + 1; ++byte) {
    const float scale = from_ue8m0(static_cast<uint8_t>(byte));
    bool on_grid = true;
    for (int i = 0; i < 32; ++i) {
      const uint8_t code = to_e2m1(values[i] / scale);
      on_grid &= from_e2m1(code) * scale == values[i];
      row[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? code : row[i / 2] | (code << 4));
    }
    if (!on_grid) continue;
    row[16] = static_cast<uint8_t>(byte);
    Report report_of_scale;
    compare_packed_row(report_of_scale, name, format, 32, unrounded, row.data(), tolerance);
    if (best.failed() || report_of_scale.worst() < best.worst()) best = report_of_scale;
  }
  report.merge(best);
}

}  // namespace hadal::testing
