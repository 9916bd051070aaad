#include "base/row_format.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"

namespace hadal {
namespace {

float max_abs(const float* x, int n) {
  float a = 0;
  for (int i = 0; i < n; ++i) a = std::max(a, std::fabs(x[i]));
  return a;
}

// Scale byte of Q1, Q4 and Q5. The floor 1e-4 and the multiplication by fp32(1/448) are the published code's.
uint8_t fp8_scale(const float* x, int n) { return pow2ceil_ue8m0(std::max(max_abs(x, n), 1e-4f) * (1.0f / 448.0f)); }

float clamp(float x, float limit) { return std::min(std::max(x, -limit), limit); }

void pack_fp4(const float* x, int n, float scale, uint8_t* codes) {
  for (int i = 0; i < n; i += 2) {
    const uint8_t low = to_e2m1(clamp(x[i] / scale, 6.0f));
    const uint8_t high = to_e2m1(clamp(x[i + 1] / scale, 6.0f));
    codes[i / 2] = static_cast<uint8_t>(low | (high << 4));
  }
}

void unpack_fp4(const uint8_t* codes, int n, float scale, float* x) {
  for (int i = 0; i < n; i += 2) {
    x[i] = from_e2m1(codes[i / 2] & 15) * scale;
    x[i + 1] = from_e2m1(codes[i / 2] >> 4) * scale;
  }
}

}  // namespace

void pack_row(RowFormat format, const float* x, int dim, uint8_t* row) {
  switch (format) {
    case RowFormat::fp8_ue8m0_32: {
      uint8_t* scales = row + dim;
      for (int b = 0; b < dim / 32; ++b) {
        scales[b] = fp8_scale(x + 32 * b, 32);
        const float s = from_ue8m0(scales[b]);
        for (int i = 32 * b; i < 32 * b + 32; ++i) row[i] = to_e4m3(clamp(x[i] / s, 448.0f));
      }
      return;
    }
    case RowFormat::fp4_ue8m0_32: {
      uint8_t* scales = row + dim / 2;
      for (int b = 0; b < dim / 32; ++b) {
        const float a = std::max(max_abs(x + 32 * b, 32), 6 * 0x1p-126f);
        scales[b] = pow2ceil_ue8m0(a * (1.0f / 6.0f));
        pack_fp4(x + 32 * b, 32, from_ue8m0(scales[b]), row + 16 * b);
      }
      return;
    }
    case RowFormat::fp4_e4m3_16: {
      uint8_t* scales = row + dim / 2;
      for (int b = 0; b < dim / 16; ++b) {
        const float a = std::max(max_abs(x + 16 * b, 16), 6 * 0x1p-9f);
        scales[b] = to_e4m3(a / 6.0f);
        pack_fp4(x + 16 * b, 16, from_e4m3(scales[b]), row + 8 * b);
      }
      return;
    }
  }
}

void unpack_row(RowFormat format, const uint8_t* row, int dim, float* x) {
  switch (format) {
    case RowFormat::fp8_ue8m0_32:
      for (int i = 0; i < dim; ++i) x[i] = e4m3_table()[row[i]] * from_ue8m0(row[dim + i / 32]);
      return;
    case RowFormat::fp4_ue8m0_32:
      for (int b = 0; b < dim / 32; ++b) unpack_fp4(row + 16 * b, 32, from_ue8m0(row[dim / 2 + b]), x + 32 * b);
      return;
    case RowFormat::fp4_e4m3_16:
      for (int b = 0; b < dim / 16; ++b) unpack_fp4(row + 8 * b, 16, from_e4m3(row[dim / 2 + b]), x + 16 * b);
      return;
  }
}

float fp8_row_scale(const float* x, int dim) { return from_ue8m0(fp8_scale(x, dim)); }

void round_fp8(float* x, int n, float scale) {
  for (int i = 0; i < n; ++i) x[i] = round_e4m3(clamp(x[i] / scale, 448.0f)) * scale;
}

void round_fp8_row(float* x, int dim) { round_fp8(x, dim, fp8_row_scale(x, dim)); }

void round_fp8_32(float* x, int dim) {
  for (int b = 0; b < dim / 32; ++b) round_fp8_row(x + 32 * b, 32);
}

void round_fp8_128(float* x, int dim) {
  for (int i = 0; i < dim; i += 128) round_fp8_row(x + i, std::min(128, dim - i));
}

}  // namespace hadal
