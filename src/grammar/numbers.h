// JSON numbers between bounds.
#pragma once

#include <cstdint>

#include "grammar/machine.h"

namespace hadal::grammar {

// Bounds of the value. Integers have at most 18 digits, so that every client can hold them.
inline constexpr std::int64_t kMostInteger = 999'999'999'999'999'999;
struct NumberBounds {
  std::int64_t least = -kMostInteger, most = kMostInteger;
  // The bound itself is left out; only for numbers (for integers the bound moves by one).
  bool above_least = false, below_most = false;
};

// Integers from least to most: no fraction, no exponent, no leading zeros. Writes nothing when there are none.
void write_integer(Machine& machine, const NumberBounds& bounds, StateId from, StateId to);

// Numbers: up to 18 digits before and 20 behind the point (with a bound that is left out so few that a double keeps them apart
// from it), and, when they are not bounded, an exponent of up to two digits.
void write_number(Machine& machine, const NumberBounds& bounds, StateId from, StateId to);

}  // namespace hadal::grammar
