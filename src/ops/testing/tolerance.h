// Tolerances, derived from the types and the lengths of sums. Nothing here is fitted to what a backend happens to do.
//
// The model. Outputs are sums of K terms of random sign whose partial sums grow like sqrt(i), so an output of a row has
// the size of the row's rms ("scale"). Errors of independent roundings add in squares:
//   sum(K)        fp32 accumulation in any order: each partial sum is rounded with unit 2^-24, uniform, so the error has
//                 the deviation 2^-24 sqrt(K / 6) of the scale (integral of i over K, times 1/3 for a uniform error)
//   products(K)   a linear with FP8 or MXFP4 weights: sum(K), and in `fp8` numerics, where a GPU multiplies 8 bits by 8, what its
//                 tensor cores drop. They add 32 products to the sum of a group of 128 at a time and cut each of these 33
//                 addends off 13 bits below the largest. With products of size 1 the group's sum reaches 8 or so: errors
//                 uniform in 8 * 2^-13 have the deviation 8 * 2^-13 sqrt(33 / 12) for 32 products of size sqrt(32)
//   rounded()     an activation between two stages is rounded by both sides. Were these roundings independent, their
//                 difference would have the deviation u sqrt(2/3), and the stage behind hands it on unchanged
//   requantised() an e4m3 code between two stages flips now and then: three flips of a step 2^-3 at values and weights
//                 four times the usual are allowed for. In `fp8` numerics products() makes one activation in 20 flip its
//                 last bit, 2u, and that flips codes: the square of the difference is the mean difference, 2u / 20, times
//                 the code's step, 2^-4 of the scale (2^-3 of a value that is 0.57 of it, rounded down to a power of two)
//   stored()      the last rounding: values on both sides of a midpoint come out one step = 2u of the value apart
// A single value may be off by kSigmas deviations (of ten million normal values none is).
//
// On top of this the typical row, the one with the median rms error, may be off by twice the deviation that remains when
// both sides do what the contract says: a rounding that is left out is small in each value but shows there. For then an
// activation flips only where fp32 noise carries it over a midpoint: one in 2^8 for the longest sums (sums_bench). One in
// 64 is allowed for, which is a deviation of 2u / 8; and one e4m3 flip of the usual size. Such differences in front of the
// last rounding make at most every other value of it flip: deviation u.
#pragma once

#include <cmath>

#include "ops/context.h"

namespace hadal::testing {

inline constexpr double kSigmas = 6;
inline constexpr double kUnitF32 = 0x1p-24;
inline constexpr double kUnitBf16 = 0x1p-8;

// Unit roundoff of activations.
inline double activation_unit(Numerics numerics) { return numerics == Numerics::fp32 ? kUnitF32 : kUnitBf16; }

struct Tolerance {
  double of_value = 0;  // |error| <= of_value * |expected| + of_scale * scale
  double of_scale = 0;
  double deviation = 0;  // median over rows of rms(error) / scale <= 2 * deviation

  Tolerance operator+(const Tolerance& other) const {
    return {of_value + other.of_value, of_scale + other.of_scale, deviation + other.deviation};
  }
  Tolerance operator*(double factor) const { return {of_value * factor, of_scale * factor, deviation * factor}; }
};

inline Tolerance random_error(double deviation) { return {0, kSigmas * deviation, deviation}; }

inline Tolerance sum(double terms) { return random_error(kUnitF32 * (1 + std::sqrt(terms / 6))); }
inline Tolerance products(Numerics numerics, double terms) {
  if (numerics != Numerics::fp8) return sum(terms);
  return sum(terms) + random_error(8 * 0x1p-13 * std::sqrt(33.0 / 12) / std::sqrt(32.0));
}
inline Tolerance rounded(Numerics numerics) {
  const double unit = activation_unit(numerics);
  const double independent = unit * std::sqrt(2.0 / 3);
  return {0, kSigmas * independent, numerics == Numerics::fp32 ? independent : unit / 4};  // fp32 noise is all there is
}
inline Tolerance stored_as(double unit) { return {2 * unit, 0, unit}; }
inline Tolerance stored(Numerics numerics) { return stored_as(activation_unit(numerics)); }
// Nothing in modes that do not quantise inputs of FP8 and FP4 linears.
inline Tolerance requantised(Numerics numerics, double terms) {
  if (numerics != Numerics::official && numerics != Numerics::fp8) return {};
  const double flip = 0x1p-3 / std::sqrt(terms);
  const Tolerance few{0, 3 * 16 * flip, flip};
  return numerics == Numerics::fp8 ? few + random_error(std::sqrt(2 * kUnitBf16 / 20 * 0x1p-4)) : few;
}

}  // namespace hadal::testing
