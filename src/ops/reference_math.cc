#include "ops/reference_math.h"

#include <algorithm>

namespace hadal::reference {

float weight_at(const Weight& w, int64_t n, int64_t k) {
  const int64_t columns = w.k;
  switch (w.format) {
    case WeightFormat::f32: return static_cast<const float*>(w.data)[n * columns + k];
    case WeightFormat::bf16: return from_bf16(static_cast<const uint16_t*>(w.data)[n * columns + k]);
    case WeightFormat::fp8_block32: {
      const uint8_t code = static_cast<const uint8_t*>(w.data)[n * columns + k];
      const int64_t blocks_per_row = (columns + 31) / 32;
      return from_e4m3(code) * from_ue8m0(w.scale[(n / 32) * blocks_per_row + k / 32]);
    }
    case WeightFormat::mxfp4: {
      const uint8_t pair = static_cast<const uint8_t*>(w.data)[(n * columns + k) / 2];
      const auto code = static_cast<uint8_t>(k % 2 == 0 ? pair & 15 : pair >> 4);
      return from_e2m1(code) * from_ue8m0(w.scale[n * (columns / 32) + k / 32]);
    }
  }
  fail(ErrorKind::internal, "unknown weight format {}", static_cast<int>(w.format));
}

Row weight_row(const Weight& w, int64_t n) {
  Row row(w.k);
  for (int64_t k = 0; k < w.k; ++k) row[k] = weight_at(w, n, k);
  return row;
}

Row weight_row(Numerics numerics, const Weight& w, int64_t n) {
  Row row = weight_row(w, n);
  if (numerics != Numerics::fp8 || w.format != WeightFormat::fp8_block32) return row;
  // One scale for 128 columns, the largest of the four; what is below its subnormals is rounded to them.
  const int64_t blocks = (w.k + 31) / 32;
  const uint8_t* scale = w.scale + n / 32 * blocks;
  for (int64_t k = 0; k < w.k; ++k) {
    const int64_t first = k / 128 * 4;
    const double largest = from_ue8m0(*std::max_element(scale + first, scale + std::min(first + 4, blocks)));
    row[k] = static_cast<float>(round_e4m3(static_cast<float>(row[k] / largest)) * largest);
  }
  return row;
}

double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

namespace {

std::vector<float> multiply(Numerics numerics, const Weight& w, const float* x, int64_t rows, int64_t stride) {
  std::vector<float> y(rows * w.n);
  for (int64_t n = 0; n < w.n; ++n) {
    const Row row = weight_row(numerics, w, n);
    for (int64_t r = 0; r < rows; ++r) y[r * w.n + n] = static_cast<float>(dot(row.data(), x + r * stride, w.k));
  }
  return y;
}

std::vector<float> rounded(Numerics numerics, std::vector<float> y) {
  for (float& v : y) v = hadal::round_activation(numerics, v);
  return y;
}

bool is_quantised(const Weight& w) { return w.format == WeightFormat::fp8_block32 || w.format == WeightFormat::mxfp4; }

// Rows of x rounded by Q1, Q4 or Q5, packed.
std::vector<float> quantised(const Weight& w, const float* x, int64_t rows, int64_t stride,
                             void (*round)(float*, int)) {
  std::vector<float> out(rows * w.k);
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(x + r * stride, w.k, out.data() + r * w.k);
    round(out.data() + r * w.k, w.k);
  }
  return out;
}

}  // namespace

std::vector<float> linear_f32(Numerics numerics, const Weight& w, const float* x, int64_t rows, int64_t stride) {
  if (!is_quantised(w)) return multiply(numerics, w, x, rows, stride);
  if (numerics == Numerics::official) {
    if (w.k % 32 != 0) fail(ErrorKind::internal, "{} columns, but Q1 needs a multiple of 32", w.k);
    return multiply(numerics, w, quantised(w, x, rows, stride, round_fp8_32).data(), rows, w.k);
  }
  if (numerics == Numerics::fp8) {
    const auto round = w.format == WeightFormat::mxfp4 ? round_fp8_row : round_fp8_128;
    return multiply(numerics, w, quantised(w, x, rows, stride, round).data(), rows, w.k);
  }
  return multiply(numerics, w, x, rows, stride);
}

std::vector<float> linear(Numerics numerics, const Weight& w, const float* x, int64_t rows, int64_t stride) {
  return rounded(numerics, linear_f32(numerics, w, x, rows, stride));
}

double inverse_rms(const float* x, int64_t n, double eps) {
  return 1 / std::sqrt(dot(x, x, n) / static_cast<double>(n) + eps);
}

void rms_norm(Numerics numerics, float* x, const uint16_t* w, int64_t n, float eps) {
  const double scale = inverse_rms(x, n, eps);
  for (int64_t i = 0; i < n; ++i) x[i] = round_activation(numerics, from_bf16(w[i]) * (x[i] * scale));
}

void rotate(Numerics numerics, const Rope& rope, float* x, int64_t dim, int32_t position, bool inverse) {
  HADAL_CHECK(rope.dim % 2 == 0 && rope.dim <= dim);
  float* rotated = x + (dim - rope.dim);
  for (int i = 0; i < rope.dim / 2; ++i) {
    const float angle = static_cast<float>(position) * rope.inv_freq[i];
    const auto c = static_cast<float>(std::cos(static_cast<double>(angle)));
    const auto s =
        static_cast<float>(inverse ? -std::sin(static_cast<double>(angle)) : std::sin(static_cast<double>(angle)));
    const float re = rotated[2 * i], im = rotated[2 * i + 1];
    rotated[2 * i] = round_activation(numerics, static_cast<double>(re) * c - static_cast<double>(im) * s);
    rotated[2 * i + 1] = round_activation(numerics, static_cast<double>(re) * s + static_cast<double>(im) * c);
  }
}

}  // namespace hadal::reference
