#include "base/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <optional>

#include "base/error.h"

namespace hadal {
namespace {

std::mutex choice_mutex;
std::optional<Isa> choice;
bool choice_used = false;

constexpr Isa kAll[] = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

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
    case Isa::avx512_bf16: return "avx512-bf16";
    case Isa::amx: return "amx";
  }
  return "?";
}

Isa parse_isa(std::string_view name) {
  for (const Isa isa : kAll)
    if (name == to_string(isa)) return isa;
  fail(ErrorKind::invalid_argument, "unknown instruction set '{}': use scalar, avx2, avx512, avx512-bf16 or amx", name);
}

bool cpu_supports(Isa isa) {
  // __builtin_cpu_supports also asks whether the operating system saves the registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
  switch (isa) {
    case Isa::scalar: return true;
    case Isa::avx2: return avx2;
    case Isa::avx512: return avx512;
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

Isa process_isa() {
  const std::lock_guard lock(choice_mutex);
  if (!choice) choice = supported_isas().back();
  choice_used = true;
  return *choice;
}

void choose_isa(Isa isa) {
  if (!cpu_supports(isa)) fail(ErrorKind::unsupported, "this CPU has no {}", to_string(isa));
  const std::lock_guard lock(choice_mutex);
  if (choice_used && *choice != isa)
    fail(ErrorKind::internal, "the instruction set is already {}; it is chosen once, at start", to_string(*choice));
  choice = isa;
}

}  // namespace hadal
