// Packed rows of the caches, and the three quantisers that are part of the model function (spec 3.1, 10.5).
//
// A row of `dim` values is stored as its codes followed by its scales. The stored grid is the one that the model
// rounds to, so packing loses nothing: unpack(pack(x)) is the rounded x. A rounded row that is packed again keeps its
// values under Q1 and Q2, though maybe as half the scale and codes twice as large; under Q3 it may not, where the scale
// is subnormal: entries are never packed again (spec 10.12).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hadal {

enum class RowFormat {
  fp8_ue8m0_32,  // Q1: e4m3 codes [dim], one ue8m0 scale per 32: window latents (528 B for 512)
  fp4_ue8m0_32,  // Q2: e2m1 codes [dim/2], one ue8m0 scale per 32: index queries and keys (68 B for 128)
  fp4_e4m3_16,   // Q3: e2m1 codes [dim/2], one e4m3 scale per 16: compressed latents (288 B for 512)
};

// Bytes of one row. dim is a multiple of 32. FP4 codes: low nibble = even channel.
constexpr size_t row_bytes(RowFormat format, int dim) {
  const auto d = static_cast<size_t>(dim);
  switch (format) {
    case RowFormat::fp8_ue8m0_32: return d + d / 32;
    case RowFormat::fp4_ue8m0_32: return d / 2 + d / 32;
    case RowFormat::fp4_e4m3_16: return d / 2 + d / 16;
  }
  return 0;
}

// Quantises x[dim] into row[row_bytes]. x must be finite.
void pack_row(RowFormat format, const float* x, int dim, uint8_t* row);

// Writes the dim values of a packed row; each is exact in bf16.
void unpack_row(RowFormat format, const uint8_t* row, int dim, float* x);

// Q1 in place: the rounding that `official` numerics apply to the inputs of FP8 and FP4 linears.
void round_fp8_32(float* x, int dim);
// Q4 in place: the rounding that `fp8` numerics apply to the inputs of FP8 linears. As Q1, in groups of 128; the last one
// may be shorter.
void round_fp8_128(float* x, int dim);
// Q5 in place: the rounding that `fp8` numerics apply to the inputs of FP4 linears. As Q1, with one scale for the row. Its
// scale, and the rounding of a part of the row with it.
void round_fp8_row(float* x, int dim);
float fp8_row_scale(const float* x, int dim);
void round_fp8(float* x, int n, float scale);

}  // namespace hadal
