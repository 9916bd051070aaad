#include "ops/operators.h"

namespace hadal {

const Operators& cpu_operators() {
#define HADAL_ENTRY(op, Args) cpu::op,
  static const Operators table{"cpu", HADAL_OPERATORS(HADAL_ENTRY)};
#undef HADAL_ENTRY
  return table;
}

}  // namespace hadal
