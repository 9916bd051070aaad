// Tables for decoding weights, built once at start. About 28 KB, of which a kernel touches the lines of the few scales
// that occur.
#pragma once

#include <cstdint>

namespace hadal::cpu {

struct DecodeTables {
  // bf16 values of the 16 e2m1 codes, twice in a row: an index may carry a fifth bit of rubbish.
  alignas(64) uint16_t e2m1_pairs[32];
  // Twice the values of the 16 e2m1 codes, plus 12; four times in a row, for indices with two more bits of rubbish.
  alignas(64) uint8_t e2m1_twice[64];
  // bf16 values times 2^126; both zeros are 0.
  alignas(64) uint16_t e2m1_large[32];
  // bf16 values of the 16 e2m1 codes times the e4m3 value of code s.
  alignas(64) uint16_t e2m1_e4m3[256][16];
  // bf16 values of the 8 subnormal e4m3 magnitudes times 2^(s - 127), four times in a row.
  alignas(64) uint16_t e4m3_small[256][32];
  // What to add to the bits (code & 0x7f) << 4 of a normal e4m3 value to make it a bf16 times 2^(s - 127).
  alignas(64) uint16_t e4m3_bias[256];
  // Lower and upper byte of the bf16 values of the 128 e4m3 magnitudes.
  alignas(64) uint8_t e4m3_low[128];
  alignas(64) uint8_t e4m3_high[128];
  // What to add to such a bf16 value, unless it is zero, to multiply it by 2^(s - 127).
  alignas(64) uint16_t e4m3_exponent[256];
  alignas(64) float ue8m0[256];
  alignas(64) float e4m3[256];
};

extern const DecodeTables tables;

}  // namespace hadal::cpu
