#include "ops/cpu/kernels.h"

#include "base/error.h"

namespace hadal::cpu {

namespace scalar {
extern const Kernels table;
}
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
namespace avx512_vnni {
extern const Kernels table;
}
namespace avx512_bf16 {
extern const Kernels table;
}
namespace amx {
extern const Kernels table;
}

const Kernels& kernels(Isa isa) {
  switch (isa) {
    case Isa::scalar: return scalar::table;
    case Isa::avx2: return avx2::table;
    case Isa::avx512: return avx512::table;
    case Isa::avx512_vnni: return avx512_vnni::table;
    case Isa::avx512_bf16: return avx512_bf16::table;
    case Isa::amx: return amx::table;
  }
  fail(ErrorKind::internal, "unknown instruction set {}", static_cast<int>(isa));
}

int64_t attention_scratch(int keys, int head_dim, int heads, Layout layout) {
  const int64_t padded = (keys + 15) / 16 * 16;
  return (padded + 16 + heads) * head_dim * element_bytes(layout) + int64_t{4} * heads * padded;
}

}  // namespace hadal::cpu
