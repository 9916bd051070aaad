// Which layout a dense weight gets when it is loaded, by its shape alone. Host code that needs no CUDA.
#pragma once

#include <string_view>

#include "ops/context.h"
#include "ops/types.h"

namespace hadal::cuda {

// Published bytes, or the order of the matrix instruction, which is then all that is kept: of 16-bit products
// (packed_linear.h) or of 8-bit ones (fp8_linear.h).
enum class Packing : uint8_t { none, bits16, bits8 };

// FP8 blocks, n a multiple of 256, k a multiple of 64.
bool can_pack(const Weight& weight);
// FP8 blocks, n and k multiples of 128.
bool can_pack_fp8(const Weight& weight);
// `portable`: CudaContext::portable().
Packing packing_of(Numerics numerics, bool portable, const Weight& weight);

// A tile of a packed weight has 64 outputs, which read the same columns of x: in a block diagonal weight those of one group.
inline constexpr int kPackedOutputs = 64;
inline bool fits_packed_tiles(const Weight& weight, int groups) {
  return groups == 1 || weight.n / groups % kPackedOutputs == 0;
}
// Operators::check_groups. Throws unsupported for a weight that would be packed and whose groups do not fit.
void check_groups(Packing packing, std::string_view name, const Weight& weight, int groups);

}  // namespace hadal::cuda
