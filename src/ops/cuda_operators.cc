#ifdef HADAL_HAVE_CUDA
#include <algorithm>

#include "ops/cuda/packed_linear.h"
#include "ops/experts/pack.h"
#include "ops/operators.h"

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

void place(CudaContext& context, Weight& w) {
  w.data = context.place_weight(w.data, data_bytes(w));
  if (w.scale != nullptr) w.scale = static_cast<const uint8_t*>(context.place_weight(w.scale, scale_bytes(w)));
}

// Published bytes in step memory, until they are packed. The stream orders what the memory is used for next.
Weight staged(CudaContext& context, Weight w) {
  w.data = context.upload(w.data, data_bytes(w));
  w.scale = static_cast<const uint8_t*>(context.upload(w.scale, scale_bytes(w)));
  return w;
}

void keep_packed(Weight& w, const void* packed) {
  w.packed = packed;
  w.data = nullptr;
  w.scale = nullptr;
}

// Dense FP8 weights get the layout of the matrix instruction. Not for the parts of a FeedForward of routed experts: their
// operator has a layout of its own, gate and up together.
void prepare_weight(Context& base, Weight& weight) {
  if (!cuda::can_pack(weight)) return;
  CudaContext& context = CudaContext::of(base);
  const size_t bytes = cuda::packed_bytes(weight);
  // The copy lives as long as the published bytes: with the context, or in step memory with the step.
  void* packed = context.is_placed(weight.data) ? context.allocate("packed weights", bytes) : context.allocate_step(bytes);
  cuda::pack_linear(context, weight, packed);
  weight.packed = packed;
}

void load_weight(Context& base, Weight& weight) {
  CudaContext& context = CudaContext::of(base);
  if (!cuda::can_pack(weight)) return place(context, weight);
  void* packed = context.allocate("packed weights", cuda::packed_bytes(weight));
  const StepScratch scratch(context);
  cuda::pack_linear(context, staged(context, weight), packed);
  keep_packed(weight, packed);
}

void load_experts(Context& base, std::span<FeedForward> experts) {
  CudaContext& context = CudaContext::of(base);
  // The matrix kernel takes a layer whose experts are all packed, and MXFP4 only (experts/cuda.cu).
  const auto packable = [](const FeedForward& e) {
    return e.w1.format == WeightFormat::mxfp4 && cuda::packed_feed_forward(e);
  };
  if (!std::all_of(experts.begin(), experts.end(), packable)) {
    for (FeedForward& e : experts)
      for (Weight* w : {&e.w1, &e.w3, &e.w2}) place(context, *w);
    return;
  }
  if (experts.empty()) return;
  const auto align = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
  const cuda::PackedFeedForward size = cuda::packed_feed_forward(experts.front());
  const size_t gate_up = align(size.gate_up), down = align(size.down);
  // One block a layer: the device allocates in units of 2 MiB.
  auto* at = static_cast<uint8_t*>(context.allocate("routed experts", (gate_up + down) * experts.size()));
  for (FeedForward& e : experts) {
    const StepScratch scratch(context);
    cuda::pack_feed_forward({staged(context, e.w1), staged(context, e.w3), staged(context, e.w2)}, at, at + gate_up,
                            context.stream());
    keep_packed(e.w1, at);
    keep_packed(e.w3, at);
    keep_packed(e.w2, at + gate_up);
    at += gate_up + down;
  }
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
                                      .load_weight = load_weight,
                                      .load_experts = load_experts,
                                      .weight_room = weight_room};
#undef HADAL_ENTRY
  return operators;
}

}  // namespace hadal
#endif
