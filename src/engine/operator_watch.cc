#include "engine/operator_watch.h"

namespace hadal {
namespace {

Operators inner_table, watched_table;
OperatorWatch* current_watch = nullptr;

template <OperatorId Id, auto Member, typename Args>
void watched(Context& context, const Args& args) {
  current_watch->before(Id);
  (inner_table.*Member)(context, args);
  current_watch->after(Id, context, &args);
}

}  // namespace

const Operators& watched_operators(const Operators& inner, OperatorWatch& watch) {
  inner_table = inner;
  current_watch = &watch;
  watched_table = inner;
#define HADAL_WATCHED(op, Args) watched_table.op = watched<OperatorId::op, &Operators::op, Args>;
  HADAL_OPERATORS(HADAL_WATCHED)
#undef HADAL_WATCHED
  return watched_table;
}

}  // namespace hadal
