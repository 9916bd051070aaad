#include "ops/context.h"

#include "base/error.h"

namespace hadal {

std::string_view to_string(Numerics numerics) {
  switch (numerics) {
    case Numerics::bf16:
      return "bf16";
    case Numerics::fp32:
      return "fp32";
    case Numerics::official:
      return "official";
  }
  return "?";
}

size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  fail(ErrorKind::internal, "unknown element type {}", static_cast<int>(type));
}

}  // namespace hadal
