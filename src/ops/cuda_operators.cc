#ifdef HADAL_HAVE_CUDA
#include <algorithm>
#include <cstring>
#include <string_view>
#include <tuple>

#include "ops/cuda/fold.h"
#include "ops/cuda/fp8_linear.h"
#include "ops/cuda/linear_input.h"
#include "ops/cuda/packed_linear.h"
#include "ops/cuda/random_values.h"
#include "ops/cuda/rotate.h"
#include "ops/experts/pack.h"
#include "ops/experts/shared.h"
#include "ops/operators.h"
#include "ops/sparse_attention/kernels.h"

namespace hadal {
namespace {

size_t data_bytes(const Weight& w) {
  const size_t count = static_cast<size_t>(w.n) * static_cast<size_t>(w.k);
  switch (w.format) {
    case WeightFormat::f32: return 4 * count;
    case WeightFormat::bf16: return 2 * count;
    case WeightFormat::fp8_block32: return count;
    case WeightFormat::mxfp4: return count / 2;
  }
  return 0;
}

size_t scale_bytes(const Weight& w) {
  const size_t blocks = (static_cast<size_t>(w.k) + 31) / 32;
  if (w.format == WeightFormat::fp8_block32) return (static_cast<size_t>(w.n) + 31) / 32 * blocks;
  return w.format == WeightFormat::mxfp4 ? static_cast<size_t>(w.n) * blocks : 0;
}

// Where the published bytes of a weight come from.
class Source {
 public:
  virtual ~Source() = default;
  // For good, where no other layout is wanted.
  virtual void place(CudaContext& context, Weight& w) const = 0;
  // In step memory, until they are packed. The stream orders what the memory is used for next.
  virtual Weight stage(CudaContext& context, Weight w) const = 0;
};

// Copies on the device are folded where they lie.
void fold(CudaContext& context, const Weight& w) {
  if (context.numerics() == Numerics::fp8 && w.format == WeightFormat::fp8_block32) cuda::fold_weight(context, w);
}

class HostBytes final : public Source {
 public:
  void place(CudaContext& context, Weight& w) const override {
    w.data = context.place_weight(w.data, data_bytes(w));
    if (w.scale != nullptr) w.scale = static_cast<const uint8_t*>(context.place_weight(w.scale, scale_bytes(w)));
    fold(context, w);
  }
  Weight stage(CudaContext& context, Weight w) const override {
    w.data = context.upload(w.data, data_bytes(w));
    w.scale = static_cast<const uint8_t*>(context.upload(w.scale, scale_bytes(w)));
    fold(context, w);
    return w;
  }
};

class RandomBytes final : public Source {
 public:
  explicit RandomBytes(const RandomValues& values) : values_(values) {}
  void place(CudaContext& context, Weight& w) const override {
    make(context, w, [&](size_t bytes) { return context.weight_memory(bytes); });
  }
  Weight stage(CudaContext& context, Weight w) const override {
    make(context, w, [&](size_t bytes) { return context.allocate_step(bytes); });
    return w;
  }

 private:
  template <typename Allocate>
  void make(CudaContext& context, Weight& w, Allocate allocate) const {
    w.data = allocate(data_bytes(w));
    if (const size_t bytes = scale_bytes(w); bytes > 0) w.scale = static_cast<const uint8_t*>(allocate(bytes));
    cuda::fill_weight(w, values_, context.stream());
    fold(context, w);
  }
  RandomValues values_;
};

void keep_packed(Weight& w, const void* packed) {
  w.packed = packed;
  w.data = nullptr;
  w.scale = nullptr;
}

// Dense FP8 weights get the layout of the matrix instruction: of 8-bit products in `fp8` numerics, where the shape allows
// it, else of 16-bit ones.
struct DenseLayout {
  size_t (*bytes)(const Weight&) = nullptr;
  void (*pack)(CudaContext&, const Weight&, void*) = nullptr;
};
DenseLayout dense_layout(const CudaContext& context, const Weight& w) {
  switch (cuda::packing_of(context.numerics(), context.portable(), w)) {
    case cuda::Packing::none: break;
    case cuda::Packing::bits16: return {cuda::packed_bytes, cuda::pack_linear};
    case cuda::Packing::bits8: return {cuda::packed_fp8_bytes, cuda::pack_fp8};
  }
  return {};
}

void check_groups(Context& base, std::string_view name, const Weight& w, int groups) {
  const CudaContext& context = CudaContext::of(base);
  cuda::check_groups(cuda::packing_of(context.numerics(), context.portable(), w), name, w, groups);
}

// Not for the parts of a FeedForward of routed experts: their
// operator has a layout of its own, gate and up together.
void prepare_weight(Context& base, Weight& weight) {
  CudaContext& context = CudaContext::of(base);
  fold(context, weight);
  const DenseLayout layout = dense_layout(context, weight);
  if (layout.pack == nullptr) return;
  const size_t bytes = layout.bytes(weight);
  // The copy lives as long as the published bytes: with the context, or in step memory with the step.
  void* packed =
      context.is_placed(weight.data) ? context.allocate("packed weights", bytes) : context.allocate_step(bytes);
  layout.pack(context, weight, packed);
  weight.packed = packed;
}

void take_weight(CudaContext& context, Weight& weight, const Source& source) {
  const DenseLayout layout = dense_layout(context, weight);
  if (layout.pack == nullptr) return source.place(context, weight);
  void* packed = context.allocate("packed weights", layout.bytes(weight));
  const StepScratch scratch(context);
  layout.pack(context, source.stage(context, weight), packed);
  keep_packed(weight, packed);
}

// `source(e, part)`: of w1, w3 and w2.
template <typename SourceOf>
void take_experts(CudaContext& context, std::span<FeedForward> experts, const SourceOf& source) {
  // The matrix kernel takes a layer whose experts are all packed (experts/cuda.cu).
  const auto layout =
      context.numerics() == Numerics::fp8 ? cuda::ExpertLayout::fp8_rows : cuda::ExpertLayout::bf16_rows;
  const auto packable = [&](const FeedForward& e) { return static_cast<bool>(cuda::packed_feed_forward(e, layout)); };
  if (context.portable() || !std::all_of(experts.begin(), experts.end(), packable)) {
    for (size_t e = 0; e < experts.size(); ++e) {
      int part = 0;
      for (Weight* w : {&experts[e].w1, &experts[e].w3, &experts[e].w2}) source(e, part++).place(context, *w);
    }
    return;
  }
  if (experts.empty()) return;
  const auto align = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
  const cuda::PackedFeedForward size = cuda::packed_feed_forward(experts.front(), layout);
  const size_t gate_up = align(size.gate_up), down = align(size.down);
  // One block a layer: the device allocates in units of 2 MiB.
  auto* at = static_cast<uint8_t*>(context.allocate("routed experts", (gate_up + down) * experts.size()));
  for (size_t i = 0; i < experts.size(); ++i) {
    FeedForward& e = experts[i];
    const StepScratch scratch(context);
    cuda::pack_feed_forward(
        {source(i, 0).stage(context, e.w1), source(i, 1).stage(context, e.w3), source(i, 2).stage(context, e.w2)},
        layout, at, at + gate_up, context.stream());
    keep_packed(e.w1, at);
    keep_packed(e.w3, at);
    keep_packed(e.w2, at + gate_up);
    at += gate_up + down;
  }
}

void load_weight(Context& base, Weight& weight) { take_weight(CudaContext::of(base), weight, HostBytes()); }

void load_experts(Context& base, std::span<FeedForward> experts) {
  take_experts(CudaContext::of(base), experts, [](size_t, int) { return HostBytes(); });
}

void random_weight(Context& base, Weight& weight, const RandomValues& values) {
  take_weight(CudaContext::of(base), weight, RandomBytes(values));
}

void random_experts(Context& base, std::span<FeedForward> experts, const RandomValues& gate_up,
                    const RandomValues& down) {
  take_experts(CudaContext::of(base), experts, [&](size_t e, int part) {
    RandomValues values = part == 2 ? down : gate_up;
    values.seed += 3 * e + static_cast<size_t>(part);
    return RandomBytes(values);
  });
}

struct TableMemory {
  uint8_t *codes, *scales;
};

TableMemory table_memory(CudaContext& context, EngramTable& table) {
  const auto codes = static_cast<size_t>(table.table_rows) * static_cast<size_t>(table.dim);
  const auto allocate = [&](size_t bytes) {
    return static_cast<uint8_t*>(table.on_host ? context.allocate_host(bytes)
                                               : context.allocate("Engram tables", bytes));
  };
  return {allocate(codes), allocate(codes / 32)};
}

void load_table(Context& base, EngramTable& table) {
  CudaContext& context = CudaContext::of(base);
  const auto codes = static_cast<size_t>(table.table_rows) * static_cast<size_t>(table.dim);
  const TableMemory memory = table_memory(context, table);
  for (const auto& [to, from, bytes] :
       {std::tuple{memory.codes, &table.codes, codes}, std::tuple{memory.scales, &table.scales, codes / 32}}) {
    if (table.on_host)
      std::memcpy(to, *from, bytes);
    else
      context.copy_to_device(to, *from, bytes);
    *from = to;
  }
}

void random_table(Context& base, EngramTable& table, const RandomValues& values) {
  CudaContext& context = CudaContext::of(base);
  const TableMemory memory = table_memory(context, table);
  table.codes = memory.codes;
  table.scales = memory.scales;
  cuda::fill_table(table, values, context.stream());
}

void random_rows(Context& base, RowFormat format, int dim, uint8_t* rows, int64_t count, uint64_t seed) {
  cuda::fill_rows(format, dim, rows, count, seed, CudaContext::of(base).stream());
}

size_t weight_room(Context& base) {
  const CudaContext& context = CudaContext::of(base);
  return context.memory_budget() - std::min(context.memory_budget(), context.allocated());
}

}  // namespace

const Operators& cuda_operators() {
#define HADAL_ENTRY(op, Args) .op = cuda::op,
  static const Operators operators = {.backend = "cuda",
                                      HADAL_OPERATORS(HADAL_ENTRY).prepare_weight = prepare_weight,
                                      .check_groups = check_groups,
                                      .load_weight = load_weight,
                                      .load_experts = load_experts,
                                      .load_table = load_table,
                                      .linear_input = cuda::linear_input,
                                      .shared_entries_bytes = cuda::shared_entries_bytes,
                                      .begin_experts = cuda::begin_experts,
                                      .weight_room = weight_room,
                                      .random_weight = random_weight,
                                      .random_experts = random_experts,
                                      .random_table = random_table,
                                      .random_rows = random_rows,
                                      .query_angles = cuda::query_angles};
#undef HADAL_ENTRY
  return operators;
}

}  // namespace hadal
#endif
