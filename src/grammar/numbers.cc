#include "grammar/numbers.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace hadal::grammar {
namespace {

constexpr int kFractionDigits = 20;
// Decimals of so many digits are different doubles when they differ.
constexpr int kExactDigits = 15;

void digits(Machine& m, StateId from, char first, char last, StateId to) {
  m.edge(from, static_cast<Symbol>(first), static_cast<Symbol>(last), to);
}

// Texts of equal length from `low` to `high`.
void same_length(Machine& m, StateId from, std::string_view low, std::string_view high, StateId to) {
  if (low.size() == 1) return digits(m, from, low[0], high[0], to);
  const auto after = [&](char first, char last, std::string_view rest_low, std::string_view rest_high) {
    if (first > last) return;
    const StateId next = m.state();
    digits(m, from, first, last, next);
    same_length(m, next, rest_low, rest_high, to);
  };
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  const std::string zeros(low_rest.size(), '0'), nines(low_rest.size(), '9');
  if (low[0] == high[0]) return after(low[0], low[0], low_rest, high_rest);
  const bool all_low = low_rest == zeros, all_high = high_rest == nines;
  if (!all_low) after(low[0], low[0], low_rest, nines);
  after(static_cast<char>(low[0] + !all_low), static_cast<char>(high[0] - !all_high), zeros, nines);
  if (!all_high) after(high[0], high[0], zeros, high_rest);
}

// Integers from 0 <= least to most.
void magnitude(Machine& m, StateId from, std::int64_t least, std::int64_t most, StateId to) {
  if (least > most) return;
  const std::string low = std::to_string(least), high = std::to_string(most);
  for (std::size_t length = low.size(); length <= high.size(); ++length)
    same_length(m, from, length == low.size() ? low : std::string(1, '1').append(length - 1, '0'),
                length == high.size() ? high : std::string(length, '9'), to);
}

enum class Fraction { any, zero, not_zero };

// A point and digits; except for not_zero they may be absent.
void fraction(Machine& m, StateId from, Fraction kind, int most_digits, StateId to) {
  if (kind != Fraction::not_zero) m.epsilon(from, to);
  if (most_digits == 0) return;
  StateId zeros = m.state(), others = m.state();  // only zeros so far; a digit that is not zero was there
  m.edge(from, '.', zeros);
  for (int i = 0; i < most_digits; ++i) {
    const StateId next_zeros = m.state(), next_others = m.state();
    m.edge(zeros, '0', next_zeros);
    if (kind != Fraction::zero) digits(m, zeros, '1', '9', next_others);
    digits(m, others, '0', '9', next_others);
    if (kind != Fraction::not_zero) m.epsilon(next_zeros, to);
    if (kind != Fraction::zero) m.epsilon(next_others, to);
    zeros = next_zeros;
    others = next_others;
  }
}

// Numbers between 0 <= least and most in size, either bound left out where it says so.
void size(Machine& m, StateId from, std::int64_t least, bool above, std::int64_t most, bool below, int fraction_digits,
          StateId to) {
  if (least > most || (least == most && (above || below))) return;
  const auto part = [&](std::int64_t low, std::int64_t high, Fraction kind) {
    if (low > high) return;
    const StateId whole = m.state();
    magnitude(m, from, low, high, whole);
    fraction(m, whole, kind, fraction_digits, to);
  };
  const std::int64_t inner = least + above;  // from here to below `most` every fraction is possible
  if (above && least < most) part(least, least, Fraction::not_zero);
  part(inner, most - 1, Fraction::any);
  if (!below && most >= inner) part(most, most, Fraction::zero);
}

}  // namespace

void write_integer(Machine& m, const NumberBounds& b, StateId from, StateId to) {
  magnitude(m, from, std::max<std::int64_t>(b.least, 0), b.most, to);
  if (b.least > 0 || b.least > b.most) return;
  const StateId minus = m.state();
  m.edge(from, '-', minus);
  // Without "-0".
  magnitude(m, minus, std::max<std::int64_t>(-b.most, 1), -b.least, to);
}

void write_number(Machine& m, const NumberBounds& b, StateId from, StateId to) {
  const bool bounded = b.least != -kMostInteger || b.most != kMostInteger || b.above_least || b.below_most;
  if (!bounded) {
    const StateId positive = m.state(), mantissa = m.state(), exponent = m.state(), first = m.state(),
                  second = m.state();
    m.epsilon(from, positive);
    m.edge(from, '-', positive);
    size(m, positive, 0, false, kMostInteger, false, kFractionDigits, mantissa);
    m.epsilon(mantissa, to);
    m.edge(mantissa, 'e', exponent);
    m.edge(mantissa, 'E', exponent);
    m.epsilon(exponent, first);
    m.edge(exponent, '+', first);
    m.edge(exponent, '-', first);
    digits(m, first, '0', '9', second);
    digits(m, second, '0', '9', to);
    return m.epsilon(second, to);
  }
  // Beside a bound that is left out, a reader of doubles must not see the bound.
  int fraction_digits = kFractionDigits;
  const auto keep_apart = [&](std::int64_t bound) {
    const int digits_of_bound = static_cast<int>(std::to_string(std::abs(bound)).size());
    fraction_digits = std::min(fraction_digits, std::max(0, kExactDigits - digits_of_bound));
  };
  if (b.above_least) keep_apart(b.least);
  if (b.below_most) keep_apart(b.most);
  if (b.most > 0 || (b.most == 0 && !b.below_most))
    size(m, from, std::max<std::int64_t>(b.least, 0), b.least >= 0 && b.above_least, b.most, b.below_most,
         fraction_digits, to);
  if (b.least >= 0 || b.least > b.most) return;
  const StateId minus = m.state();
  m.edge(from, '-', minus);
  size(m, minus, std::max<std::int64_t>(-b.most, 0), b.most <= 0 && b.below_most, -b.least, b.above_least,
       fraction_digits, to);
}

}  // namespace hadal::grammar
