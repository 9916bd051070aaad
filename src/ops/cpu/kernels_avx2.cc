// The kernels for AVX2, FMA and F16C: 16 registers, two for sixteen floats.
#include "ops/cpu/kernel_headers.h"

#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

#define HADAL_PAIRS 0
#define HADAL_DIGITS 0
#define HADAL_SPLIT_FP8 0
#define HADAL_TILES 0

namespace hadal::cpu {
namespace avx2 {
namespace {

// Registers decide how many outputs and input rows a loop keeps.
constexpr int kNR = 2, kMR = 3, kValueHeads = 2;

#include "ops/cpu/simd_avx2.inc"

#include "ops/cpu/all.inc"

}  // namespace

extern const Kernels table;
const Kernels table = make_kernels(Isa::avx2);

}  // namespace avx2
}  // namespace hadal::cpu

#pragma GCC pop_options
