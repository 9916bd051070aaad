// Which instruction set the CPU kernels use. One per process: results may differ between instruction sets, and a
// request must give the same tokens whatever runs beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hadal {

// In ascending order of preference.
enum class Isa : uint8_t {
  scalar,       // plain C++
  avx2,         // AVX2, FMA and F16C
  avx512,       // AVX-512 F, BW, DQ, VL (Skylake-SP)
  avx512_vnni,  // and VBMI and VNNI (Ice Lake)
  avx512_bf16,  // AVX-512 with VBMI and BF16 (Zen 4)
  amx,          // and AMX tiles of BF16 (Sapphire Rapids)
};

std::string_view to_string(Isa isa);
Isa parse_isa(std::string_view name);  // throws Error for an unknown name

bool cpu_supports(Isa isa);
std::vector<Isa> supported_isas();  // ascending, `scalar` first

struct Processor {
  std::string vendor;  // as CPUID spells it: GenuineIntel
  int family = 0, model = 0;
};
Processor this_processor();
// Why a lower instruction set is faster than this one on a processor; empty where none is.
std::string_view reason_against(Isa isa, const Processor& processor);
// The last of `supported` that nothing speaks against.
Isa best_isa(std::span<const Isa> supported, const Processor& processor);

// The instruction set of this process: the best for this CPU, unless choose_isa was called before the first use.
Isa process_isa();
// Throws Error when the CPU lacks it, or when process_isa() has already been used with another one.
void choose_isa(Isa isa);

}  // namespace hadal
