#include "base/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"

namespace hadal {
namespace {

std::mutex choice_mutex;
std::optional<Isa> choice;
bool choice_used = false;

constexpr Isa kAll[] = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16, Isa::amx};

// Tiles with BF16. Linux saves their registers only for processes that have asked for it, once for all threads.
bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::scalar: return "scalar";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_vnni: return "avx512-vnni";
    case Isa::avx512_bf16: return "avx512-bf16";
    case Isa::amx: return "amx";
  }
  return "?";
}

Isa parse_isa(std::string_view name) {
  for (const Isa isa : kAll)
    if (name == to_string(isa)) return isa;
  fail(ErrorKind::invalid_argument,
       "unknown instruction set '{}': use scalar, avx2, avx512, avx512-vnni, avx512-bf16 or amx", name);
}

bool cpu_supports(Isa isa) {
  // __builtin_cpu_supports also asks whether the operating system saves the registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool vbmi = avx512 && __builtin_cpu_supports("avx512vbmi");
  const bool bf16 = vbmi && __builtin_cpu_supports("avx512bf16");
  switch (isa) {
    case Isa::scalar: return true;
    case Isa::avx2: return avx2;
    case Isa::avx512: return avx512;
    case Isa::avx512_vnni: return vbmi && __builtin_cpu_supports("avx512vnni");
    case Isa::avx512_bf16: return bf16;
    case Isa::amx: {
      static const bool amx = bf16 && may_use_amx();
      return amx;
    }
  }
  return false;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> all;
  for (const Isa isa : kAll)
    if (cpu_supports(isa)) all.push_back(isa);
  return all;
}

Processor this_processor() {
  unsigned highest = 0, b = 0, c = 0, d = 0, a = 0;
  Processor p;
  if (__get_cpuid(0, &highest, &b, &c, &d) == 0) return p;
  for (const unsigned word : {b, d, c})
    for (int i = 0; i < 4; ++i) p.vendor += static_cast<char>(word >> 8 * i & 0xff);
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return p;
  p.family = static_cast<int>(a >> 8 & 0xf);
  p.model = static_cast<int>((a >> 4 & 0xf) | (a >> 12 & 0xf0));
  if (p.family == 0xf) p.family += static_cast<int>(a >> 20 & 0xff);
  return p;
}

std::string_view reason_against(Isa isa, const Processor& p) {
  // Sapphire and Emerald Rapids start a bf16 dot product every other time that they start an fp32 multiply-add: no
  // more products a second, and weights that take more instructions. `v41-mini` on Emerald Rapids, avx512-bf16 and
  // avx512, ms of CPU time: 16 requests 207 and 178, a prompt of 512 tokens 1167 and 907; one request, which memory
  // binds, 20.5 and 23.1. avx512-vnni is faster still.
  const bool golden_cove = p.vendor == "GenuineIntel" && p.family == 6 && (p.model == 143 || p.model == 207);
  if (isa == Isa::avx512_bf16 && golden_cove)
    return "this processor runs the bf16 dot product at half the rate of an fp32 multiply-add";
  return {};
}

Isa best_isa(std::span<const Isa> supported, const Processor& processor) {
  Isa best = Isa::scalar;
  for (const Isa isa : supported)
    if (reason_against(isa, processor).empty()) best = isa;
  return best;
}

Isa process_isa() {
  const std::lock_guard lock(choice_mutex);
  if (!choice) choice = best_isa(supported_isas(), this_processor());
  choice_used = true;
  return *choice;
}

void choose_isa(Isa isa) {
  if (!cpu_supports(isa)) {
    std::string names;
    for (const Isa there : supported_isas())
      names += std::string(names.empty() ? "" : ", ") + std::string(to_string(there));
    fail(ErrorKind::unsupported, "this CPU has no {}; it has {}", to_string(isa), names);
  }
  const std::lock_guard lock(choice_mutex);
  if (choice_used && *choice != isa)
    fail(ErrorKind::internal, "the instruction set is already {}; it is chosen once, at start", to_string(*choice));
  choice = isa;
}

}  // namespace hadal
