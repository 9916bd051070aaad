// Tolerances, derived from the types and the lengths of sums. Nothing here is fitted to what a backend happens to do.
//
// The model. Outputs are sums of K terms of random sign whose partial sums grow like sqrt(i), so an output of a row has
// the size of the row's rms ("scale"). Errors of independent roundings add in squares:
//   sum(K)        fp32 accumulation in any order: each partial sum is rounded with unit 2^-24, uniform, so the error has
//                 the deviation 2^-24 sqrt(K / 6) of the scale (integral of i over K, times 1/3 for a uniform error)
//   products(K)   a linear with FP8 or MXFP4 weights: sum(K), and in `fp8` numerics, where a GPU multiplies 8 bits by 8, what its
//                 tensor cores drop. They add 32 products to the sum of a group of 128 at a time and cut each of these 33
//                 addends off 13 bits below the largest. With products of size 1 the sum before an addition is a normal
//                 value times sqrt(32), sqrt(64) or sqrt(96); the power of two below it has the mean square 0.57 of its
//                 own. Before the first there is none, and the largest product begins with 2. The squares of the four units, 2^-13
//                 of these, add up to 4 + 0.57 * 192 = 113 in the mean. A product of two E4M3 numbers has 8 bits, so only
//                 what is below 2^-7 of the largest addend loses any: 3.7 of 32 (counted by the square of the unit), up to
//                 one unit each and towards zero, 0.28 of it in square; and the sum itself where it grows, 0.16: 1.2 in all.
//                 So the deviation is 2^-13 sqrt(113 * 1.2 / 128) of the group's size, sqrt(128): kDropped. The counts are
//                 those of normal values, which tolerance_test.cc adds in this way. 6 to 7% of results then round to another
//                 bf16 value, as they do on an H200 (docs/numerics.md); normal errors of this deviation would be 7.4%. A
//                 single value may be off by twice kSigmas deviations: where a sum was large on the way, so were its units
//   rounded()     an activation between two stages is rounded by both sides. Were these roundings independent, their
//                 difference would have the deviation u sqrt(2/3), and the stage behind hands it on unchanged
//   requantised() an e4m3 code between two stages flips now and then: three flips of a step 2^-3 at values and weights
//                 four times the usual are allowed for. In `fp8` numerics products() moves an activation by the mean of
//                 a normal value, sqrt(2 / pi) kDropped, which rounding to bf16 keeps as a mean; and a code flips in the
//                 share of cases that this is of its step, so that the square of the difference is the mean times the
//                 step: 2^-3 of the power of two below the activation, which is 0.58 of the scale in the mean
//   stored()      the last rounding: values on both sides of a midpoint come out one step apart, which is 2u of a value at a
//                 power of two and less above it. One flip therefore takes from half to all of this, never more; of the
//                 hundreds in a large case some take nearly all. That is no sign of a kernel at the end of its tolerance
// A single value may be off by kSigmas deviations (of ten million normal values none is).
//
// On top of this the typical row, the one with the median rms error, may be off by twice the deviation that remains when
// both sides do what the contract says: a rounding that is left out is small in each value but shows there. For then an
// activation flips only where fp32 noise carries it over a midpoint: one in 2^8 for the longest sums (sums_bench). One in
// 64 is allowed for, which is a deviation of 2u / 8; and one e4m3 flip of the usual size. Such differences in front of the
// last rounding make at most every other value of it flip: deviation u.
#pragma once

#include <cmath>
#include <numbers>

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
inline const double kDropped = 0x1p-13 * std::sqrt(113 * 1.2 / 128);  // 1.26e-4
inline Tolerance products(Numerics numerics, double terms) {
  if (numerics != Numerics::fp8) return sum(terms);
  return sum(terms) + Tolerance{0, 2 * kSigmas * kDropped, kDropped};
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
  const double moved = std::sqrt(2 / std::numbers::pi) * kDropped, step = 0.58 * 0x1p-3;
  return numerics == Numerics::fp8 ? few + random_error(std::sqrt(moved * step)) : few;
}

}  // namespace hadal::testing
