// The kernels for AVX-512: 32 registers.
#include "ops/cpu/kernel_headers.h"

#include <immintrin.h>

#pragma GCC push_options
// GCC 12's header passes undefined registers on purpose and warns about it itself (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

#define HADAL_PAIRS 0
#define HADAL_DIGITS 0
#define HADAL_SPLIT_FP8 1
#define HADAL_TILES 0

namespace hadal::cpu {
namespace avx512 {
namespace {

// Registers decide how many outputs and input rows a loop keeps.
constexpr int kNR = 4, kMR = 6, kValueHeads = 8;

#include "ops/cpu/simd_avx512.inc"

#include "ops/cpu/all.inc"

}  // namespace

extern const Kernels table;
const Kernels table = make_kernels(Isa::avx512);

}  // namespace avx512
}  // namespace hadal::cpu

#pragma GCC pop_options
