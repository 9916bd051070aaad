#include "ops/operators.h"

namespace hadal {

const Operators& reference_operators() {
#define HADAL_ENTRY(op, Args) table.op = reference::op;
  static const Operators operators = [] {
    Operators table;
    table.backend = "reference";
    HADAL_OPERATORS(HADAL_ENTRY)
    return table;
  }();
#undef HADAL_ENTRY
  return operators;
}

}  // namespace hadal
