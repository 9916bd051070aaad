// The kernels for any machine.
#include "ops/cpu/kernel_headers.h"

#define HADAL_PAIRS 0
#define HADAL_DIGITS 0
#define HADAL_SPLIT_FP8 0
#define HADAL_TILES 0

namespace hadal::cpu {
namespace scalar {
namespace {

// Registers decide how many outputs and input rows a loop keeps.
constexpr int kNR = 2, kMR = 2, kValueHeads = 2;

#include "ops/cpu/simd_scalar.inc"

#include "ops/cpu/all.inc"

}  // namespace

extern const Kernels table;
const Kernels table = make_kernels(Isa::scalar);

}  // namespace scalar
}  // namespace hadal::cpu
