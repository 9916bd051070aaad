// The experts operator on a GPU: groups rows, runs the matrix kernel (or the general one), adds the shared expert.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/cuda/errors.h"
#include "ops/experts/experts.h"
#include "ops/experts/general.h"
#include "ops/experts/grouped.h"
#include "ops/experts/shared.h"

namespace hadal::cuda {
namespace {

// The local experts of a layer, ascending.
std::vector<int> local_experts(const ExpertStore& store) {
  std::vector<int> local;
  for (int e = 0; e < store.count(); ++e)
    if (store.is_local(e)) local.push_back(e);
  return local;
}

// The matrix kernel takes a layer when every local expert was packed at load (pack.h).
bool all_packed(const ExpertStore& store, const std::vector<int>& local) {
  return !local.empty() && std::all_of(local.begin(), local.end(), [&](int e) {
    const FeedForward& w = store.expert(e);
    return w.w1.format == WeightFormat::mxfp4 && w.w1.packed && w.w2.packed;
  });
}

PackedPointers packed_pointers(const FeedForward& w) {
  return {static_cast<const uint8_t*>(w.w1.packed), static_cast<const uint8_t*>(w.w2.packed)};
}

// Routed outputs of the local experts: the rows, and where a choice finds its row.
struct Routed {
  const int* choice_row = nullptr;
  const uint16_t* out = nullptr;
};

// The device array `what` about the experts of a layer, which the address of one of its matrices tells from others. Loaded
// weights stay where they are, so theirs is made once, and steps that are recorded find it there.
template <typename T>
const T* about_experts(CudaContext& context, const std::string& what, const std::vector<T>& host, const void* weights,
                       bool loaded) {
  if (!loaded) return context.upload(host);
  return static_cast<const T*>(context.constant(what, weights, [&] {
    void* device = context.allocate("routed experts", host.size() * sizeof(T));
    context.copy_to_device(device, host.data(), host.size() * sizeof(T));
    return device;
  }));
}

// The values of rounded rows fit bf16.
const uint16_t* rounded_rows(CudaContext& context, Scratch& scratch, const ExpertsArgs& args) {
  const int d = static_cast<int>(args.x.cols), group = round_group(context.numerics(), d);
  if (group == 0) return args.x.bf16();
  auto* rounded = scratch.get<uint16_t>(static_cast<size_t>(args.rows) * d);
  round_inputs(args.x.bf16(), rounded, args.rows, d, group, context.stream());
  return rounded;
}

// Up to 8 rows in FP8: one launch.
Routed run_few(CudaContext& context, Scratch& scratch, const ExpertsArgs& args, const std::vector<int>& local, int d,
               int width) {
  const ExpertStore& store = *args.experts;
  std::vector<PackedPointers> packed(store.count());
  for (const int e : local) packed[e] = packed_pointers(store.expert(e));
  const size_t rows = few_expert_rows(args.rows, args.topk);
  FewExpertsArgs few;
  GroupedArgs& grouped = few.grouped;
  grouped.plan.pair_row = scratch.get<int>(static_cast<size_t>(args.rows) * args.topk);
  grouped.x = args.x.bf16();
  grouped.activated = scratch.get<uint16_t>(rows * width);
  grouped.out = scratch.get<uint16_t>(rows * d);
  grouped.d = d;
  grouped.width = width;
  grouped.limit = args.limit;
  grouped.fp8 = true;
  few.ids = args.ids.i32();
  few.weights = args.weights.f32();
  few.experts = about_experts(context, "packed experts by id", packed, packed[local.front()].gate_up, true);
  few.count = store.count();
  few.rows = args.rows;
  few.topk = args.topk;
  few.counters = static_cast<int*>(context.lasting("experts", kFewCounters * sizeof(int)));
  few_experts(few, context.multiprocessors(), context.stream());
  return {grouped.plan.pair_row, grouped.out};
}

// Rows grouped by expert and, for FP8 products, rounded; by the same pass those of the shared expert, unless it has none.
GroupedArgs group_rows(CudaContext& context, Scratch& scratch, const ExpertsArgs& args, const std::vector<int>& local,
                       int d, int width, const Fp8Rows& shared_rows) {
  const ExpertStore& store = *args.experts;
  std::vector<int32_t> slot_of(store.count(), -1);
  std::vector<PackedPointers> packed;
  for (const int e : local) {
    slot_of[e] = static_cast<int32_t>(packed.size());
    packed.push_back(packed_pointers(store.expert(e)));
  }
  const int slots = static_cast<int>(packed.size());
  GroupedArgs grouped;
  grouped.fp8 = context.numerics() == Numerics::fp8;
  const size_t plan_bytes = row_plan_bytes(args.rows, args.topk, slots, store.count(), grouped.fp8);
  grouped.plan = row_plan(scratch.get<char>(plan_bytes), args.rows, args.topk, slots, store.count(), grouped.fp8);
  // Experts are packed by load_experts alone, for good.
  const void* first = packed.front().gate_up;
  grouped.weights = about_experts(context, "packed experts by slot", packed, first, true);
  const size_t capacity = grouped.plan.row_capacity;
  RowsToRound to_round;
  if (grouped.fp8) {
    to_round = {args.x.bf16(), d, scratch.get<uint8_t>(fp8_codes(grouped.plan, d)), scratch.get<uint16_t>(capacity),
                shared_rows};
    grouped.x = to_round.codes;
    grouped.x_scale = to_round.scales;
    grouped.activated_codes = scratch.get<uint8_t>(fp8_codes(grouped.plan, width));
    grouped.activated_scale = scratch.get<uint16_t>(capacity);
  } else {
    grouped.x = rounded_rows(context, scratch, args);
  }
  grouped.activated = scratch.get<uint16_t>(capacity * width);
  grouped.out = scratch.get<uint16_t>(capacity * d);
  grouped.d = d;
  grouped.width = width;
  grouped.limit = args.limit;
  grouped.round_activations = context.numerics() == Numerics::official;
  plan_rows(grouped.plan, args.ids.i32(), args.weights.f32(), args.rows, args.topk,
            about_experts(context, "slots of experts", slot_of, first, true), slots, to_round, context.stream());
  return grouped;
}

Routed run_general(CudaContext& context, Scratch& scratch, const ExpertsArgs& args, const std::vector<int>& local,
                   int d, int width) {
  const ExpertStore& store = *args.experts;
  std::vector<FeedForward> experts(store.count());
  for (const int e : local) {
    experts[e] = store.expert(e);
    if (!experts[e].w1.data) fail_shape("experts", "published weight bytes where not all local experts are packed", e);
  }
  const void* first = experts[local.front()].w1.data;
  const size_t choices = static_cast<size_t>(args.rows) * args.topk;
  GeneralExpertsArgs general;
  general.experts = about_experts(context, "experts by id", experts, first, context.is_placed(first));
  general.ids = args.ids.i32();
  general.weights = args.weights.f32();
  general.rows = args.rows;
  general.topk = args.topk;
  general.d = d;
  general.width = width;
  general.limit = args.limit;
  general.x = rounded_rows(context, scratch, args);
  general.activated = scratch.get<uint16_t>(choices * width);
  general.out = scratch.get<uint16_t>(choices * d);
  general.choice_row = scratch.get<int>(choices);
  general.numerics = context.numerics();
  general_experts(general, context.stream());
  return {general.choice_row, general.out};
}

}  // namespace

void experts(Context& base, const ExpertsArgs& args) {
  CudaContext& context = CudaContext::of(base);
  if (args.rows == 0) return;
  HADAL_CUDA_CHECK(args.x.type == DType::bf16 && args.y.type == DType::bf16 && args.x.cols % 8 == 0);
  Scratch scratch(context);
  const int d = static_cast<int>(args.x.cols);

  const std::vector<int> local = local_experts(*args.experts);
  const bool any = !local.empty(), packed = all_packed(*args.experts, local);
  const int width = any ? args.experts->expert(local.front()).w1.n : 0;

  // Few rows: the shared expert beside the routed ones, and in a model beside the router. Many: one pass over x rounds it
  // for both.
  ExpertsArgs begun = args;
  if (!begun.shared_out) begin_experts(context, begun);
  Tensor shared = begun.shared_out;
  Routed routed;
  if (packed && context.numerics() == Numerics::fp8 &&
      few_experts_take(args.rows, args.topk, args.experts->count(), d, width)) {
    if (!shared) shared = shared_expert(context, scratch, args, {});
    routed = run_few(context, scratch, args, local, d, width);
  } else if (packed) {
    const Fp8Rows shared_rows = shared ? Fp8Rows{} : shared_expert_rows(context, scratch, args);
    const GroupedArgs grouped = group_rows(context, scratch, args, local, d, width, shared_rows);
    if (!shared) shared = shared_expert(context, scratch, args, shared_rows);
    grouped_feed_forward(grouped, context.multiprocessors(), context.stream());
    routed = {grouped.plan.pair_row, grouped.out};
  } else {
    if (!shared) shared = shared_expert(context, scratch, args, {});
    if (any) routed = run_general(context, scratch, args, local, d, width);
  }
  if (begun.begun != nullptr) static_cast<Branch*>(begun.begun.get())->join();
  combine_rows(routed.choice_row, routed.out, shared ? shared.bf16() : nullptr, args.y.bf16(), args.rows,
               routed.choice_row ? args.topk : 0, d, context.stream());
}

}  // namespace hadal::cuda
