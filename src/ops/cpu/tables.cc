#include "ops/cpu/tables.h"

#include <algorithm>

#include "base/dtype.h"

namespace hadal::cpu {
namespace {

// A product that does not reach a normal bf16 is rounded as any other; the dot product flushes it anyway.
DecodeTables make_tables() {
  DecodeTables t{};
  for (int s = 0; s < 256; ++s) {
    const auto byte = static_cast<uint8_t>(s);
    const float scale = from_ue8m0(byte);
    t.ue8m0[s] = scale;
    t.e4m3[s] = from_e4m3(byte);
    for (int i = 0; i < 32; ++i) t.e4m3_small[s][i] = to_bf16(static_cast<float>(i & 7) * 0x1p-9f * scale);
    for (int i = 0; i < 16; ++i) t.e2m1_e4m3[s][i] = to_bf16(from_e2m1(static_cast<uint8_t>(i)) * t.e4m3[s]);
    // exponent 120 + (s - 127); scales below 2^-120 stop there, so that the exponent field cannot wrap.
    t.e4m3_bias[s] = static_cast<uint16_t>((std::max(s, 7) - 7) << 7);
    // The values reach from 2^-9 to 448.
    t.e4m3_exponent[s] = static_cast<uint16_t>((std::clamp(s, 10, 245) - 127) * 128);
  }
  for (int i = 0; i < 32; ++i) {
    t.e2m1_pairs[i] = to_bf16(from_e2m1(static_cast<uint8_t>(i)));
    t.e2m1_large[i] = i % 8 == 0 ? uint16_t{0} : static_cast<uint16_t>(t.e2m1_pairs[i] + (126 << 7));
  }
  for (int i = 0; i < 64; ++i) t.e2m1_twice[i] = static_cast<uint8_t>(2 * from_e2m1(static_cast<uint8_t>(i & 15)) + 12);
  for (int i = 0; i < 128; ++i) {
    const uint16_t value = to_bf16(from_e4m3(static_cast<uint8_t>(i)));
    t.e4m3_low[i] = static_cast<uint8_t>(value & 255);
    t.e4m3_high[i] = static_cast<uint8_t>(value >> 8);
  }
  return t;
}

}  // namespace

const DecodeTables tables = make_tables();

}  // namespace hadal::cpu
