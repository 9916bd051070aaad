// Somebody who sees every operator call of a model: to time stages, or to replace what an operator put out.
#pragma once

#include "ops/operators.h"

namespace hadal {

class OperatorWatch {
 public:
  virtual ~OperatorWatch() = default;
  virtual void before(OperatorId) {}
  // `args`: the operator's arguments, of the type that HADAL_OPERATORS names.
  virtual void after(OperatorId, Context&, const void* args) { (void)args; }
};

// The same table, with every call shown to `watch`. Operators are plain functions, so there is one watched table in a
// process; asking for one again replaces what it calls.
const Operators& watched_operators(const Operators& inner, OperatorWatch& watch);

}  // namespace hadal
