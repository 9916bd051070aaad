// What the reference operators are built from. Slow and plain: every line can be held against the
// specification.
//
// Arithmetic between two rounding points is double, so that the reference is close to the exact value of each
// formula, and a value is rounded where the specification rounds it: to fp32 when it is stored, to bf16 by
// round_activation, to a cache grid by pack_row. Sums run over ascending k. Two things are fp32 on purpose,
// because their fp32 bits are part of the model: the rotation angle (spec 3.1) and the quantisers' scales
// (spec 10.5).
#pragma once

#include <cmath>
#include <vector>

#include "base/error.h"
#include "ops/types.h"

namespace hadal::reference {

using Row = std::vector<float>;

// ---- shape checks
// ----------------------------------------------------------------------------------------------
inline void check_shape(const Tensor& t, DType type, int64_t rows, int64_t cols, const char* name) {
  if (!t || t.type != type || t.rows < rows || t.cols != cols)
    fail(ErrorKind::internal, "{}: [{}, {}] of type {}, expected [{}, {}] of type {}", name, t.rows, t.cols,
         static_cast<int>(t.type), rows, cols, static_cast<int>(type));
}

inline void check_weight(const Weight& w, int64_t n, int64_t k, const char* name) {
  if (w.data == nullptr || w.n != n || w.k != k)
    fail(ErrorKind::internal, "{}: weight [{}, {}], expected [{}, {}]", name, w.n, w.k, n, k);
  const bool scaled = w.format == WeightFormat::fp8_block32 || w.format == WeightFormat::mxfp4;
  if (scaled && w.scale == nullptr) fail(ErrorKind::internal, "{}: weight without scales", name);
  if (w.format == WeightFormat::mxfp4 && k % 32 != 0)
    fail(ErrorKind::internal, "{}: {} columns of mxfp4, expected a multiple of 32", name, k);
}

// ---- weights and linears
// --------------------------------------------------------------------------------------- W[n, k],
// dequantised (spec 2.3).
float weight_at(const Weight& w, int64_t n, int64_t k);
Row weight_row(const Weight& w, int64_t n);
// As the numerics have it: `fp8` folds the scales of FP8 weights (docs/numerics.md).
Row weight_row(Numerics numerics, const Weight& w, int64_t n);

double dot(const float* a, const float* b, int64_t n);

// y = W x, rounded to fp32 only. x is [rows, k], row-major with `stride` floats from one row to the next.
// `official` numerics round the input of an FP8 or FP4 weight by Q1 (spec 3.1), `fp8` by Q4
// and Q5.
std::vector<float> linear_f32(Numerics numerics, const Weight& w, const float* x, int64_t rows, int64_t stride);
// y = bf16(W x): a linear layer whose output is an activation.
std::vector<float> linear(Numerics numerics, const Weight& w, const float* x, int64_t rows, int64_t stride);

// ---- norms, rotations, functions
// ------------------------------------------------------------------------------- 1 / sqrt(mean(x^2) + eps)
double inverse_rms(const float* x, int64_t n, double eps);

// In place: x = bf16(w * (x * rsqrt(mean(x^2) + eps))), one rounding (spec 3.1).
void rms_norm(Numerics numerics, float* x, const uint16_t* w, int64_t n, float eps);

// In place on the last rope.dim of x[dim]: interleaved pairs times exp(i angle), rounded to bf16 (spec 3.1).
// `inverse` uses the conjugate.
void rotate(Numerics numerics, const Rope& rope, float* x, int64_t dim, int32_t position, bool inverse = false);

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
// PyTorch's form: x itself above 20 (spec 3.7).
inline double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// Rounding of an interior double at a bf16 boundary, through fp32 as every implementation does.
inline float round_activation(Numerics numerics, double x) {
  return hadal::round_activation(numerics, static_cast<float>(x));
}

// ---- rows of a step
// --------------------------------------------------------------------------------------------
inline int rows_of_segment(const RowSet& set, int segment) {
  return set.seg_begin[segment + 1] - set.seg_begin[segment];
}
// Row of `x` that feeds row r: a null map is the identity.
inline int64_t mapped(const int32_t* source, int64_t r) { return source == nullptr ? r : source[r]; }

}  // namespace hadal::reference
