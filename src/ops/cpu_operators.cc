#include "ops/cpu/context.h"
#include "ops/cpu/fold.h"
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

// `fp8` numerics: weights whose scales are folded lie beside the published bytes, for as long as those.
template <typename Allocate>
void fold(Context& context, Weight& w, Allocate allocate) {
  if (context.numerics() != Numerics::fp8 || !cpu::needs_folding(w)) return;
  const size_t codes = static_cast<size_t>(w.n) * static_cast<size_t>(w.k);
  auto* to = static_cast<uint8_t*>(
      allocate(codes + (static_cast<size_t>(w.n) + 31) / 32 * ((static_cast<size_t>(w.k) + 31) / 32)));
  cpu::fold_weight(w, to, to + codes);
  w.data = to;
  w.scale = to + codes;
}

void prepare_weight(Context& context, Weight& w) {
  fold(context, w, [&](size_t bytes) { return context.allocate_step(bytes); });
}

void load_weight(Context& context, Weight& w) {
  fold(context, w, [&](size_t bytes) { return context.allocate_cache(bytes); });
}

}  // namespace

const Operators& cpu_operators() {
#define HADAL_ENTRY(op, Args) .op = cpu::op,
  static const Operators table{.backend = "cpu",
                               HADAL_OPERATORS(HADAL_ENTRY).prepare_weight = prepare_weight,
                               .load_weight = load_weight,
                               .random_rows = random_rows};
#undef HADAL_ENTRY
  return table;
}

}  // namespace hadal
