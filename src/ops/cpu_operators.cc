#include "ops/cpu/context.h"
#include "ops/operators.h"

namespace hadal {
namespace {

void random_rows(Context& context, RowFormat format, int dim, uint8_t* rows, int64_t count, uint64_t seed) {
  const auto bytes = static_cast<int64_t>(row_bytes(format, dim));
  constexpr int64_t kRows = 256;  // a task
  cpu_context(context).pool().parallel_for(static_cast<int>((count + kRows - 1) / kRows), [&](int task) {
    const int64_t end = std::min(count, (task + 1) * kRows) * bytes;
    for (int64_t i = task * kRows * bytes; i < end; ++i)
      rows[i] = random_values::row_byte(format, dim, static_cast<int>(i % bytes),
                                        random_values::bits(seed, static_cast<uint64_t>(i)));
  });
}

}  // namespace

const Operators& cpu_operators() {
#define HADAL_ENTRY(op, Args) .op = cpu::op,
  static const Operators table{.backend = "cpu", HADAL_OPERATORS(HADAL_ENTRY).random_rows = random_rows};
#undef HADAL_ENTRY
  return table;
}

}  // namespace hadal
